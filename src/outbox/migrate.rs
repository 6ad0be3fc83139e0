//! The schema and its versions: migrations go forward only, and a binary refuses a schema it does not fit.

use super::{Database, Error, Purpose};

/// The schema that this binary was written for.
pub const BINARY_VERSION: i32 = 15;

/// Every migration, in order: the version it leads to, and its text.
const MIGRATIONS: [(i32, &str); 15] = [
    (1, include_str!("../../sql/migrations/0001_foundation.sql")),
    (2, include_str!("../../sql/migrations/0002_functions.sql")),
    (3, include_str!("../../sql/migrations/0003_searches.sql")),
    (4, include_str!("../../sql/migrations/0004_fleet.sql")),
    (5, include_str!("../../sql/migrations/0005_plans.sql")),
    (6, include_str!("../../sql/migrations/0006_today.sql")),
    (7, include_str!("../../sql/migrations/0007_blocks.sql")),
    (8, include_str!("../../sql/migrations/0008_by_block.sql")),
    (9, include_str!("../../sql/migrations/0009_operate.sql")),
    (10, include_str!("../../sql/migrations/0010_days.sql")),
    (11, include_str!("../../sql/migrations/0011_unique.sql")),
    (12, include_str!("../../sql/migrations/0012_append.sql")),
    (13, include_str!("../../sql/migrations/0013_roles.sql")),
    (14, include_str!("../../sql/migrations/0014_alike.sql")),
    (15, include_str!("../../sql/migrations/0015_verify.sql")),
];

/// How a schema and this binary fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    Fits,
    /// There is no schema, or an older one.
    TooOld {
        version: i32,
    },
    /// The schema has moved past this binary.
    TooNew {
        oldest_binary: i32,
    },
}

impl Fit {
    pub fn of(version: i32, oldest_binary: i32) -> Self {
        if BINARY_VERSION > version {
            Self::TooOld { version }
        } else if BINARY_VERSION < oldest_binary {
            Self::TooNew { oldest_binary }
        } else {
            Self::Fits
        }
    }
}

pub async fn fit(database: &Database) -> Result<Fit, Error> {
    use tokio_postgres::error::SqlState;
    let file = include_str!("../../sql/admin/schema_version.sql");
    match database.query(Purpose::Admin, file, &[]).await {
        Ok(rows) => {
            let row = rows.first();
            Ok(row.map_or(Fit::TooOld { version: 0 }, |row| Fit::of(row.get("version"), row.get("oldest_binary"))))
        }
        Err(error)
            if matches!(error.sql_state(), Some(&SqlState::UNDEFINED_TABLE | &SqlState::INVALID_SCHEMA_NAME)) =>
        {
            Ok(Fit::TooOld { version: 0 })
        }
        Err(error) => Err(error),
    }
}

/// Brings the schema to this binary's version. Answers the versions it went through.
pub async fn migrate(database: &Database) -> Result<Vec<i32>, Error> {
    let (mut client, connection) = database.direct().await?;
    let driver = tokio::spawn(connection);
    let outcome = apply(database, &mut client).await;
    drop(client);
    // The connection ends with its client; its own error was already the client's.
    let _ = driver.await;
    outcome
}

async fn apply(database: &Database, client: &mut tokio_postgres::Client) -> Result<Vec<i32>, Error> {
    let mut applied = Vec::new();
    for (version, file) in MIGRATIONS {
        let failed = |source| Error::statement(file, source);
        let transaction = client.transaction().await.map_err(failed)?;
        // Two processes that start together: the second waits here and finds the work done.
        transaction.batch_execute(include_str!("../../sql/migrations/lock.sql")).await.map_err(failed)?;
        if current(database, &transaction).await.map_err(failed)? >= version {
            continue;
        }
        transaction.batch_execute(&database.schema.text(file)).await.map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        applied.push(version);
    }
    Ok(applied)
}

async fn current(
    database: &Database,
    transaction: &tokio_postgres::Transaction<'_>,
) -> Result<i32, tokio_postgres::Error> {
    let exists = include_str!("../../sql/migrations/exists.sql");
    let rows = transaction.query_typed(&database.schema.text(exists), &[]).await?;
    if !rows.first().is_some_and(|row| row.get("found")) {
        return Ok(0);
    }
    let file = include_str!("../../sql/admin/schema_version.sql");
    let rows = transaction.query_typed(&database.schema.text(file), &[]).await?;
    Ok(rows.first().map_or(0, |row| row.get("version")))
}

/// Settings without which no guarantee holds; the names of those that are off.
pub async fn unsafe_settings(database: &Database) -> Result<Vec<&'static str>, Error> {
    let file = include_str!("../../sql/admin/server_settings.sql");
    let rows = database.query(Purpose::Admin, file, &[]).await?;
    let off = |name: &&str| rows.first().is_some_and(|row| row.get::<_, &str>(*name) == "off");
    Ok(["fsync", "full_page_writes"].into_iter().filter(off).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_refuses_a_schema_below_or_past_it() {
        assert_eq!(Fit::of(BINARY_VERSION, BINARY_VERSION), Fit::Fits);
        assert_eq!(Fit::of(BINARY_VERSION + 3, BINARY_VERSION), Fit::Fits, "rolling upgrades work");
        assert_eq!(Fit::of(BINARY_VERSION - 1, 0), Fit::TooOld { version: BINARY_VERSION - 1 });
        assert_eq!(Fit::of(BINARY_VERSION + 2, BINARY_VERSION + 1), Fit::TooNew { oldest_binary: BINARY_VERSION + 1 });
    }
}
