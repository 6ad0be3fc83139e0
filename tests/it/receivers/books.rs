//! What a receiver has in its database, against what it should have.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::{Client, NoTls};

use crate::support::{PATIENCE, TestDatabase, eventually, services};

/// A receiver's schema.
pub struct Books {
    pub database: TestDatabase,
}

impl Books {
    pub async fn open() -> Self {
        let database = TestDatabase::new().await;
        database.execute(&format!("create schema {0}; set search_path to {0}", database.schema)).await;
        Self { database }
    }

    /// The server's URL with this schema as the one that names without a schema mean.
    pub fn url(&self) -> String {
        let (url, schema) = (&services().database_url, &self.database.schema);
        let more = if url.contains('?') { '&' } else { '?' };
        format!("{url}{more}options=-c%20search_path%3D{schema}")
    }

    pub async fn balances(&self) -> BTreeMap<String, i64> {
        let rows = self.database.query("select name, balance from accounts", &[]).await;
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    pub async fn balance(&self, account: &str) -> i64 {
        self.balances().await.get(account).copied().unwrap_or_default()
    }

    pub async fn keys(&self) -> BTreeSet<String> {
        self.database.query("select key from processed_events", &[]).await.iter().map(|row| row.get(0)).collect()
    }

    /// A session of the test's own, in an open transaction.
    pub async fn hold(&self, text: &str) -> Hold {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.expect("Postgres answers");
        tokio::spawn(connection);
        let process = client.query_one("select pg_backend_pid()", &[]).await.expect("a process").get(0);
        let hold = Hold { client, process };
        // A test that fails to end it must not keep it for ever.
        hold.execute(&format!("set idle_in_transaction_session_timeout = '60s'; begin; {text}")).await;
        hold
    }

    /// Waits until this many other transactions wait for that one.
    pub async fn waiting_for(&self, hold: &Hold, count: i64) {
        let text = "select count(*) from pg_stat_activity where $1 = any(pg_blocking_pids(pid))";
        eventually("others wait for the lock", PATIENCE, async || {
            let waiting: i64 = self.database.query(text, &[&hold.process]).await[0].get(0);
            (waiting >= count).then_some(())
        })
        .await;
    }
}

/// A transaction that holds something.
pub struct Hold {
    pub client: Client,
    process: i32,
}

impl Hold {
    pub async fn execute(&self, text: &str) {
        self.client.batch_execute(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
    }
}
