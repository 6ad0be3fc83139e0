//! `oncebox migrate`: brings the schema forward. Safe to run again, and from several processes at once.

use super::{ConfigPath, Failure, block_on, load};
use crate::outbox::{Database, migrate as schema};

pub fn migrate(path: &ConfigPath) -> Result<(), Failure> {
    let loaded = load(&path.config)?;
    let database = Database::new(&loaded.config.postgres)?;
    let applied = block_on(schema::migrate(&database))?;
    match applied.last() {
        Some(version) => println!("schema `{}` is now version {version}", loaded.config.postgres.schema),
        None => println!("schema `{}` is up to date", loaded.config.postgres.schema),
    }
    Ok(())
}
