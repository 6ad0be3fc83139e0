//! The schema and its versions: migrations go forward only, and a binary refuses a schema it does not fit.

use super::{Database, Error, Purpose};

/// The schema that this binary was written for.
pub const BINARY_VERSION: i32 = 17;

/// Every migration, in order: the version it leads to, and its text.
const MIGRATIONS: [(i32, &str); 17] = [
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
    (16, include_str!("../../sql/migrations/0016_audit.sql")),
    (17, include_str!("../../sql/migrations/0017_ends.sql")),
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

/// Functions that statements call and that are not there: tables alone were copied, or somebody has changed something.
pub async fn missing_functions(database: &Database) -> Result<Vec<String>, Error> {
    let file = include_str!("../../sql/admin/missing_functions.sql");
    let rows = database.query(Purpose::Admin, file, &[]).await?;
    Ok(rows.iter().map(|row| row.get("signature")).collect())
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    /// Of those that databases have gone through, in order.
    const FROZEN: [&str; 12] = [
        "18d29fc52f4232f12f256517409671e68d561f9ba8840b836606f2d08e8ade88",
        "eb6aa30885405bca92c06e07ab3e1e382ef033afe3a359ec014cf2f0a9cc9215",
        "c376cb794b2ef4442fff548bba5b10894ba4d0b3ce07bc3d8a9585fcee4b58e5",
        "faee5ebf409dd8b516ea8b3f3d6be671bd494c9a25d019883bb936df26ba9184",
        "c99ad16e7a377ecc168bcea52a450ea4430f4986db8549a809d6606f5418d314",
        "7e75f7b45637aac28adc96a3ae4a09995b8faca5e971f0dd05f72f2fd912c63a",
        "69420fb80205e28430f0b0a06b8a64d4cdbd6d56b601645331ab0ecf6d607cf6",
        "6953355ac64a5907fc7744fbbd83df2299076e17bf01fa470153461e83f955b4",
        "31620a851f6df383d8abf348ebdaefcd825b070a47f24f7d16f906aaa802cc3b",
        "0d8a00a77acf15af39e4b7d689c7a0b5f870c6fed44e2934d20f12d7c60e5540",
        "9f79803caa86acc5289cea450968ae1e23c9e3d5eef5b6e81ae31437dfd3a625",
        "c04b9c0fc2e17869040fb57c1a914fdba1743561f0816b87d61488f4c2164b6c",
    ];

    /// A schema that has gone through one never does so again: what is to be another is for a new one.
    #[test]
    fn migrations_that_have_landed_stay_as_they_are() {
        for ((version, text), frozen) in MIGRATIONS.into_iter().zip(FROZEN) {
            let digest: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digest, frozen, "migration {version} was changed");
        }
    }

    #[test]
    fn every_function_that_a_statement_calls_is_looked_for_at_the_start() {
        let statements = concat!(env!("CARGO_MANIFEST_DIR"), "/sql");
        let list = std::fs::read_to_string(format!("{statements}/admin/missing_functions.sql")).unwrap();
        let mut calls = 0;
        for folder in std::fs::read_dir(statements).unwrap().flatten() {
            if folder.file_name() == "migrations" {
                continue;
            }
            for file in std::fs::read_dir(folder.path()).unwrap().flatten() {
                let text = std::fs::read_to_string(file.path()).unwrap();
                for rest in text.split("oncebox.").skip(1) {
                    let (name, _) =
                        rest.split_once(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or((rest, ""));
                    if rest[name.len()..].starts_with('(') {
                        assert!(list.contains(&format!("('oncebox.{name}(")), "{}: {name}", file.path().display());
                        calls += 1;
                    }
                }
            }
        }
        assert!(calls > 30, "{calls} calls found");
    }

    #[test]
    fn a_binary_refuses_a_schema_below_or_past_it() {
        assert_eq!(Fit::of(BINARY_VERSION, BINARY_VERSION), Fit::Fits);
        assert_eq!(Fit::of(BINARY_VERSION + 3, BINARY_VERSION), Fit::Fits, "rolling upgrades work");
        assert_eq!(Fit::of(BINARY_VERSION - 1, 0), Fit::TooOld { version: BINARY_VERSION - 1 });
        assert_eq!(Fit::of(BINARY_VERSION + 2, BINARY_VERSION + 1), Fit::TooNew { oldest_binary: BINARY_VERSION + 1 });
    }
}
