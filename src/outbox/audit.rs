//! Who changed what by hand. Written in the transaction of the change, so that neither is without the other.

use super::Error;
use super::database::Within;
use super::sql::text;

/// What is put on record.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    pub who: &'a str,
    pub action: &'a str,
    pub workflow: Option<&'a str>,
    pub detail: &'a str,
}

pub async fn write(within: Within<'_>, entry: &Entry<'_>) -> Result<(), Error> {
    let parameters = [text(&entry.who), text(&entry.action), text(&entry.workflow), text(&entry.detail)];
    within.query(include_str!("../../sql/admin/write_audit.sql"), &parameters).await?;
    Ok(())
}
