//! Connections to Postgres: pools that cannot starve each other, TLS up to verify-full, and the checks before work
//! starts.
//!
//! Claims never take the connections that settling needs: a settlement that waits past its lease is a repeat. And a question that reads much
//! never takes the one that operators' changes and quick questions need.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Transaction};
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use postgres_openssl::MakeTlsConnector;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Connection, NoTls, Socket};

use super::Error;
use super::sql::{Parameter, Schema};
use crate::config::{Postgres, PostgresTlsMode};

/// How long any statement may take on our side before its connection is dropped: a black-holed one never answers.
pub const STATEMENT_LIMIT: Duration = Duration::from_secs(10);
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long the connection for slow questions outlives the last one. A proof asks page after page.
const KEPT_APART: Duration = Duration::from_secs(5);

/// What a connection is for. Each has its own share of `poolSize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Append,
    Settle,
    Claim,
    Admin,
}

/// All access to Postgres. Cheap to clone.
#[derive(Clone)]
pub struct Database {
    append: Pool,
    settle: Pool,
    claim: Pool,
    admin: Pool,
    /// Beside `poolSize`, and closed while nobody asks.
    slow: Pool,
    pub schema: Schema,
    settings: Postgres,
}

impl Database {
    /// Makes pools; connects when they are used.
    pub fn new(settings: &Postgres) -> Result<Self, Error> {
        let manager = || {
            let mut config: tokio_postgres::Config = settings.url.expose().parse().map_err(Error::Settings)?;
            prepare(&mut config, settings.tls_mode);
            let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
            Ok::<_, Error>(match settings.tls_mode {
                PostgresTlsMode::Disable => Manager::from_config(config, NoTls, recycling),
                _ => Manager::from_config(config, connector(settings)?, recycling),
            })
        };
        let pool = |share: usize| Pool::builder(manager()?).max_size(share.max(1)).build().map_err(|_| Error::Pool);
        // Of the default 8: append 2, settle 3, claim 2, admin 1.
        let size = settings.pool_size;
        Ok(Self {
            append: pool(size / 4)?,
            settle: pool(size - size / 4 - size / 4 - 1)?,
            claim: pool(size / 4)?,
            admin: pool(1)?,
            slow: pool(1)?,
            schema: Schema::new(&settings.schema),
            settings: settings.clone(),
        })
    }

    pub async fn get(&self, purpose: Purpose) -> Result<Object, Error> {
        let pool = match purpose {
            Purpose::Append => &self.append,
            Purpose::Settle => &self.settle,
            Purpose::Claim => &self.claim,
            Purpose::Admin => &self.admin,
        };
        connection(pool).await
    }

    /// Runs one statement as its own transaction. A connection that did not answer in time is not used again.
    pub async fn query(
        &self,
        purpose: Purpose,
        file: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<tokio_postgres::Row>, Error> {
        let client = self.get(purpose).await?;
        let text = self.schema.text(file);
        let token = (purpose == Purpose::Admin).then(|| client.cancel_token());
        match tokio::time::timeout(STATEMENT_LIMIT, client.query_typed(&text, parameters)).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(source)) => Err(Error::statement(file, source)),
            Err(_) => {
                drop(Object::take(client));
                if let Some(token) = token {
                    self.cancel(token);
                }
                Err(Error::TooSlow)
            }
        }
    }

    /// Asks what may read all that is stored, one question at a time. What nobody waits for any more is ended, also when whoever asked has
    /// gone.
    pub async fn ask_slowly(
        &self,
        file: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<tokio_postgres::Row>, Error> {
        let client = match connection(&self.slow).await {
            // It was there all the time: others were asking.
            Err(Error::TooSlow) => return Err(Error::Busy),
            found => found?,
        };
        let text = self.schema.text(file);
        let mut question = Question { database: self, client: Some(client) };
        let client = question.client.as_ref().expect("it is there until there is an answer");
        let answer = tokio::time::timeout(STATEMENT_LIMIT, client.query_typed(&text, parameters)).await;
        let answer = answer.map_err(|_| Error::TooSlow)?;
        drop(question.client.take());
        let pool = self.slow.clone();
        tokio::spawn(async move {
            tokio::time::sleep(KEPT_APART).await;
            pool.retain(|_, metrics| metrics.last_used() < KEPT_APART);
        });
        answer.map_err(|source| Error::statement(file, source))
    }

    /// Runs several statements as one transaction. A connection that did not answer in time is not used again.
    pub async fn transaction<T>(
        &self,
        purpose: Purpose,
        work: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.transaction_of(purpose, STATEMENT_LIMIT, work).await
    }

    /// The same for one that may take longer.
    pub async fn transaction_of<T>(
        &self,
        purpose: Purpose,
        limit: Duration,
        work: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut client = self.get(purpose).await?;
        let made = tokio::time::timeout(limit, async {
            let transaction = client.transaction().await.map_err(Error::Transaction)?;
            let done = work(&transaction).await?;
            transaction.commit().await.map_err(Error::Transaction)?;
            Ok(done)
        });
        match made.await {
            Ok(outcome) => outcome,
            Err(_) => {
                drop(Object::take(client));
                Err(Error::TooSlow)
            }
        }
    }

    /// Has Postgres end what nobody waits for any more: a question that reads too much would go on reading.
    fn cancel(&self, token: tokio_postgres::CancelToken) {
        let settings = self.settings.clone();
        // A process that ends has nothing to do this with: its connections end as well.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(tokio::time::timeout(STATEMENT_LIMIT, async move {
            // It ends by itself where the server is away.
            let _ = match (settings.tls_mode, connector(&settings)) {
                (PostgresTlsMode::Disable, _) | (_, Err(_)) => token.cancel_query(NoTls).await,
                (_, Ok(tls)) => token.cancel_query(tls).await,
            };
        }));
    }

    /// A connection of its own, for LISTEN and migrations. The caller drives the returned connection.
    pub async fn direct(&self) -> Result<(Client, Connection<Socket, DirectStream>), Error> {
        let mut config: tokio_postgres::Config = self.settings.direct_url.expose().parse().map_err(Error::Settings)?;
        prepare(&mut config, self.settings.tls_mode);
        config.connect(connector(&self.settings)?).await.map_err(Error::Connect)
    }
}

/// A slow question under way. Dropped before there is an answer, it takes its connection along and has Postgres end it.
struct Question<'a> {
    database: &'a Database,
    client: Option<Object>,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            let token = client.cancel_token();
            drop(Object::take(client));
            self.database.cancel(token);
        }
    }
}

/// Where a statement runs.
#[derive(Clone, Copy)]
pub enum Within<'a> {
    /// As a transaction of its own.
    Alone(&'a Database, Purpose),
    /// As a part of one.
    Transaction(&'a Database, &'a Transaction<'a>),
}

impl Within<'_> {
    pub async fn query(
        &self,
        file: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<tokio_postgres::Row>, Error> {
        match self {
            Self::Alone(database, purpose) => database.query(*purpose, file, parameters).await,
            Self::Transaction(database, transaction) => {
                let text = database.schema.text(file);
                transaction.query_typed(&text, parameters).await.map_err(|source| Error::statement(file, source))
            }
        }
    }
}

async fn connection(pool: &Pool) -> Result<Object, Error> {
    match tokio::time::timeout(STATEMENT_LIMIT, pool.get()).await {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(deadpool_postgres::PoolError::Backend(source))) => Err(Error::Connect(source)),
        Ok(Err(_)) => Err(Error::Pool),
        Err(_) => Err(Error::TooSlow),
    }
}

pub type DirectStream = <MakeTlsConnector as tokio_postgres::tls::MakeTlsConnect<Socket>>::Stream;

fn prepare(config: &mut tokio_postgres::Config, mode: PostgresTlsMode) {
    config.ssl_mode(match mode {
        PostgresTlsMode::Disable => SslMode::Disable,
        PostgresTlsMode::Prefer => SslMode::Prefer,
        PostgresTlsMode::Require | PostgresTlsMode::VerifyCa | PostgresTlsMode::VerifyFull => SslMode::Require,
    });
    config.connect_timeout(CONNECT_LIMIT);
    config.tcp_user_timeout(STATEMENT_LIMIT);
    config.keepalives_idle(Duration::from_secs(10));
    config.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::ReadWrite);
    if config.get_application_name().is_none() {
        config.application_name("oncebox");
    }
}

fn connector(settings: &Postgres) -> Result<MakeTlsConnector, Error> {
    let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(Error::Tls)?;
    match &settings.tls_ca {
        Some(file) => builder.set_ca_file(file).map_err(Error::Tls)?,
        None => {
            if let Some(file) = openssl_probe::probe().cert_file {
                // A machine without certificates still connects where none are asked for.
                let _ = builder.set_ca_file(file);
            }
        }
    }
    builder.set_verify(if settings.tls_mode.verifies() { SslVerifyMode::PEER } else { SslVerifyMode::NONE });
    let named = settings.tls_mode == PostgresTlsMode::VerifyFull;
    let mut connector = MakeTlsConnector::new(builder.build());
    connector.set_callback(move |connection, _| {
        connection.set_verify_hostname(named);
        Ok(())
    });
    Ok(connector)
}
