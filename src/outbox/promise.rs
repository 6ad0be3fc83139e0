//! Which workflows run at most once. What a process sends under that promise no other may send again, so that it goes with no other.

use super::{Database, Error, Purpose};

/// A workflow that a process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    pub workflow: String,
    pub at_most_once: bool,
}

/// What processes run, this one included.
pub async fn running(database: &Database) -> Result<Vec<Running>, Error> {
    let file = include_str!("../../sql/admin/running_promises.sql");
    let rows = database.query(Purpose::Admin, file, &[]).await?;
    let one =
        |row: &tokio_postgres::Row| Running { workflow: row.get("workflow"), at_most_once: row.get("at_most_once") };
    Ok(rows.iter().map(one).collect())
}
