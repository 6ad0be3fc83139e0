//! Who changed what by hand, newest first.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Error, Operator, Page};
use crate::outbox::Purpose;
use crate::outbox::sql::{int8, text, timestamptz};

/// Something that was changed, and by whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AuditEntry)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub at: Timestamp,
    /// The name of a token, `api:local` without tokens, `cli:` and a name for the command line, or `oncebox` itself.
    pub who: String,
    pub action: String,
    pub workflow: Option<String>,
    /// The event, the replay or the reason, and whatever else there is to say.
    pub detail: Option<String>,
}

impl Operator {
    pub async fn audit(&self, after: Option<&str>, limit: usize) -> Result<Page<Entry>, Error> {
        let (at, lies_at) = after.map(mark).transpose()?.unzip();
        let asked = i64::try_from(limit).unwrap_or(i64::MAX);
        let parameters = [timestamptz(&at), text(&lies_at), int8(&asked)];
        let file = include_str!("../../sql/operate/audit.sql");
        let rows = self.database.query(Purpose::Admin, file, &parameters).await?;
        let last = rows.last().filter(|_| rows.len() == limit);
        let next = last.map(|row| written(row.get("at"), row.get("lies_at")));
        let items = rows.iter().map(|row| Entry {
            at: row.get("at"),
            who: row.get("who"),
            action: row.get("action"),
            workflow: row.get("workflow"),
            detail: row.get("detail"),
        });
        Ok(Page { items: items.collect(), next })
    }
}

/// Where a page ends: the time of its last row in microseconds, and where that lies, without the brackets that Postgres puts around it.
fn written(at: Timestamp, lies_at: &str) -> String {
    format!("{}/{}", at.as_microsecond(), lies_at.trim_matches(['(', ')']).replace(',', "."))
}

fn mark(next: &str) -> Result<(Timestamp, String), Error> {
    let parse = || {
        let (at, lies_at) = next.split_once('/')?;
        let (block, index) = lies_at.split_once('.')?;
        let (block, index): (u32, u16) = (block.parse().ok()?, index.parse().ok()?);
        Some((Timestamp::from_microsecond(at.parse().ok()?).ok()?, format!("({block},{index})")))
    };
    parse().ok_or_else(|| Error::Invalid(format!("`{next}` is not the `next` of a page")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_page_reads_back_as_it_was_written_and_nothing_else_does() {
        let at = Timestamp::from_microsecond(1_700_000_000_123_456).unwrap();
        assert_eq!(mark(&written(at, "(7,12)")).ok(), Some((at, "(7,12)".to_owned())));
        for text in ["", "1", "1/", "1/2", "1/2.", "1/2.3.4", "a/1.2", "1/-2.3", "1/2.70000", "1/4294967296.1"] {
            assert!(mark(text).is_err(), "{text}");
        }
    }
}
