//! Events found by what people know of them: their record, or their key.

use super::events::Summary;
use super::listing::summary;
use super::{Error, Operator, Page, submit};
use crate::event::{CursorId, Place};
use crate::outbox::seen::{self, Given};
use crate::outbox::sql::{int4, int8, text};
use crate::outbox::{self, Purpose};

impl Operator {
    /// The events of one record, given as topic/partition/offset.
    pub async fn events_of_record(&self, source: &str, workflow: Option<&str>) -> Result<Page<Summary>, Error> {
        let parse = || {
            let (rest, offset) = source.rsplit_once('/')?;
            let (topic, partition) = rest.rsplit_once('/')?;
            Some((topic.to_owned(), partition.parse::<i32>().ok()?, offset.parse::<i64>().ok()?))
        };
        let (topic, partition, offset) =
            parse().ok_or_else(|| Error::Invalid(format!("`{source}` is not topic/partition/offset")))?;
        let parameters = [text(&topic), int4(&partition), int8(&offset), text(&workflow)];
        let file = include_str!("../../sql/operate/events_of_record.sql");
        let rows = self.database.query(Purpose::Admin, file, &parameters).await?;
        Ok(Page { items: rows.iter().map(summary).collect(), next: None })
    }

    /// The events of a workflow with this idempotency key. One that a caller gave over HTTP is remembered, and found by that; for any other
    /// all that is stored of the workflow is read.
    pub async fn events_of_key(&self, workflow: &str, key: &str) -> Result<Page<Summary>, Error> {
        self.known(workflow).await?;
        let given = seen::given(&self.database, workflow, &submit::key_fingerprint(key)).await?;
        let mut rows = Vec::new();
        if let Some(Given { place: Place { cursor: CursorId(cursor), offset, .. }, .. }) = given {
            let parameters = [int8(&cursor), int8(&offset), text(&key)];
            let file = include_str!("../../sql/operate/events_of_given_key.sql");
            rows = self.database.query(Purpose::Admin, file, &parameters).await?;
        }
        if rows.is_empty() {
            rows = self.search(workflow, key).await?;
        }
        Ok(Page { items: rows.iter().map(summary).collect(), next: None })
    }

    async fn search(&self, workflow: &str, key: &str) -> Result<Vec<tokio_postgres::Row>, Error> {
        let parameters = [text(&workflow), text(&key)];
        let found = self.database.ask_slowly(include_str!("../../sql/operate/events_of_key.sql"), &parameters).await;
        match found {
            Err(outbox::Error::TooSlow) => {
                // Postgres answers everything else: it is the search that is too long, and asking again would be as long.
                outbox::workflow::states(&self.database, &[workflow]).await?;
                Err(Error::TooMuchToSearch(format!(
                    "more is stored of `{workflow}` than can be searched for a key in {} s: ask for the events of a record \
                     (source: topic/partition/offset) or for those in a state",
                    outbox::database::STATEMENT_LIMIT.as_secs()
                )))
            }
            found => Ok(found?),
        }
    }
}
