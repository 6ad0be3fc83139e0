//! A schema of a test's own, and questions to it.

use oncebox::outbox::Database;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row};

use super::{services, unique};

pub struct TestDatabase {
    pub schema: String,
    pub client: Client,
}

impl TestDatabase {
    /// An empty schema name; `migrate` fills it.
    pub async fn new() -> Self {
        let (client, connection) =
            tokio_postgres::connect(&services().database_url, NoTls).await.expect("Postgres answers");
        tokio::spawn(connection);
        Self { schema: unique("t"), client }
    }

    /// The database as the relay sees it.
    pub fn opened(&self) -> Database {
        self.opened_at(&services().database_url)
    }

    /// The same by another URL.
    pub fn opened_at(&self, url: &str) -> Database {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c.yaml");
        let yaml = format!("postgres: {{url: \"{url}\", schema: {}}}\n", self.schema);
        std::fs::write(&path, yaml).expect("written");
        let (loaded, _) = oncebox::config::read(&path);
        Database::new(&loaded.expect("a configuration").config.postgres).expect("settings")
    }

    /// `oncebox.` in the text becomes this test's schema.
    pub async fn query(&self, text: &str, parameters: &[&(dyn ToSql + Sync)]) -> Vec<Row> {
        let text = text.replace("oncebox.", &format!("{}.", self.schema));
        self.client.query(&text, parameters).await.unwrap_or_else(|error| panic!("{text}: {error:?}"))
    }

    pub async fn count(&self, text: &str) -> i64 {
        self.query(text, &[]).await[0].get(0)
    }

    pub async fn execute(&self, text: &str) {
        let text = text.replace("oncebox.", &format!("{}.", self.schema));
        self.client.batch_execute(&text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (url, schema) = (services().database_url.clone(), self.schema.clone());
        if std::thread::panicking() {
            eprintln!("schema kept for a look: {schema}");
            return;
        }
        // On a thread of its own: the test's runtime is ending.
        let _ = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                if let Ok((client, connection)) = tokio_postgres::connect(&url, NoTls).await {
                    tokio::spawn(connection);
                    let _ = client.batch_execute(&format!("drop schema if exists {schema} cascade")).await;
                }
            });
        })
        .join();
    }
}
