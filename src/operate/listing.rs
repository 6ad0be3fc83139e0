//! Which events there are, by workflow and state. `search` finds those of a record, and those of a key.
//!
//! Lists go by place, from cursor to cursor; what a page costs is bounded, so that one may be empty though others follow. Where few wait in
//! a state, they are found by that, however many others there are.

use std::str::FromStr;

use super::events::{STATES, Summary};
use super::{Error, Operator, Page};
use crate::event::{CursorId, Place};
use crate::outbox::sql::{int4, int8, text, texts};
use crate::outbox::{Purpose, claim};

/// Rows that one page looks at.
const LOOKED_AT: i64 = 2_000;
/// As many with a row of their own and in one state are put in order: sql/operate/waiting_events.sql.
const FEW: i64 = 10_000;
/// What holds those that wait for somebody's word.
const IN_DOUBT: &str = "in_doubt";
/// States of events that have a row of their own.
const OWN_ROW: [&str; 3] = ["scheduled", "retryable", "pending"];

/// Where a list of events goes on. Those with a row of their own come first, where both are asked for, and of those the ones that wait for
/// somebody's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    table: Table,
    place: Place,
}

/// What is gone through, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Table {
    /// Of those with a row of their own, the ones in doubt that are held.
    Held,
    Retry,
    Stored,
}

impl Mark {
    /// Before every event of a cursor.
    fn start(table: Table, CursorId(cursor): CursorId) -> Self {
        Self { table, place: Place { cursor: CursorId(cursor), offset: -1, index: -1, generation: -1 } }
    }

    fn write(self) -> String {
        let (letter, Place { cursor: CursorId(cursor), offset, index, generation }) = match self.table {
            Table::Held => ('h', self.place),
            Table::Retry => ('r', self.place),
            Table::Stored => ('s', self.place),
        };
        format!("{letter}.{cursor}.{offset}.{index}.{generation}")
    }
}

impl FromStr for Mark {
    type Err = Error;

    fn from_str(written: &str) -> Result<Self, Error> {
        let parse = || {
            let mut parts = written.split('.');
            let table = match parts.next()? {
                "h" => Table::Held,
                "r" => Table::Retry,
                "s" => Table::Stored,
                _ => return None,
            };
            let cursor = CursorId(parts.next()?.parse().ok()?);
            let (offset, index) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            let generation = parts.next()?.parse().ok()?;
            parts.next().is_none().then_some(Self { table, place: Place { cursor, offset, index, generation } })
        };
        parse().ok_or_else(|| Error::Invalid(format!("`{written}` is not the `next` of a page")))
    }
}

/// One stretch of a list.
struct Stretch {
    found: Vec<(Place, Summary)>,
    /// The last row that was looked at.
    edge: Option<Place>,
    looked_at: i64,
}

impl Operator {
    /// Events of a workflow, by place.
    pub async fn events(
        &self,
        workflow: &str,
        state: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<Summary>, Error> {
        self.known(workflow).await?;
        if let Some(state) = state.filter(|state| !STATES.contains(state)) {
            return Err(Error::Invalid(format!("`{state}` is not a state; there are: {}", STATES.join(", "))));
        }
        let after: Option<Mark> = after.map(str::parse).transpose()?;
        let tables: &[Table] = match state {
            Some("pending") => &[Table::Held, Table::Retry],
            Some(state) if OWN_ROW.contains(&state) => &[Table::Retry],
            Some("available" | "active") => &[Table::Retry, Table::Stored],
            Some(_) | None => &[Table::Stored],
        };
        let file = include_str!("../../sql/operate/cursors.sql");
        let rows = self.database.query(Purpose::Admin, file, &[text(&workflow)]).await?;
        let (mut items, mut budget) = (Vec::new(), LOOKED_AT);
        for table in tables {
            if after.is_some_and(|mark| mark.table > *table) {
                continue;
            }
            let after = after.filter(|mark| mark.table == *table);
            let begin = after.unwrap_or(Mark::start(*table, CursorId(i64::MIN)));
            if let Some(state) = state
                && let Some(found) = self.few(workflow, state, begin, limit - items.len()).await?
            {
                for (place, summary) in found {
                    items.push(summary);
                    if items.len() == limit {
                        return Ok(Page { items, next: Some(Mark { table: *table, place }.write()) });
                    }
                }
                continue;
            }
            for row in &rows {
                let (cursor, settled_to): (i64, i64) = (row.get("cursor"), row.get("settled_to"));
                let mut mark = Mark::start(*table, CursorId(cursor));
                match after {
                    Some(after) if after.place.cursor.0 > cursor => continue,
                    Some(after) if after.place.cursor.0 == cursor => mark = after,
                    Some(_) | None => {}
                }
                // What waits for its first attempt, or has it under way, is not settled; all before it is.
                if tables.len() == 2 && *table == Table::Stored {
                    mark.place.offset = mark.place.offset.max(settled_to - 1);
                }
                loop {
                    if budget <= 0 {
                        return Ok(Page { items, next: Some(mark.write()) });
                    }
                    let wanted = i64::try_from(limit - items.len()).unwrap_or(i64::MAX);
                    let most = if state.is_some() { budget.min(500) } else { budget.min(wanted) };
                    let Stretch { found, edge, looked_at } = self.walk(mark, state, most).await?;
                    // A look that finds nothing is not for free either.
                    budget -= looked_at.max(1);
                    for (place, summary) in found {
                        let is_held = summary.held.as_deref() == Some(IN_DOUBT);
                        let is_of_another_list = match table {
                            Table::Held => !is_held,
                            Table::Retry => is_held,
                            Table::Stored => tables.len() == 2 && summary.due.is_some(),
                        };
                        if is_of_another_list {
                            continue;
                        }
                        items.push(summary);
                        if items.len() == limit {
                            return Ok(Page { items, next: Some(Mark { table: *table, place }.write()) });
                        }
                    }
                    match edge {
                        Some(edge) if looked_at == most => mark.place = edge,
                        // There is no more of this cursor.
                        Some(_) | None => break,
                    }
                }
            }
        }
        Ok(Page { items, next: None })
    }

    /// The next ones in a state that have a row of their own, of all cursors; nothing when too many are in it to be put in order.
    async fn few(
        &self,
        workflow: &str,
        state: &str,
        mark: Mark,
        most: usize,
    ) -> Result<Option<Vec<(Place, Summary)>>, Error> {
        let Place { cursor: CursorId(cursor), offset, index, generation } = mark.place;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = match mark.table {
            Table::Held => {
                let parameters =
                    [text(&workflow), int8(&cursor), int8(&offset), int4(&index), int4(&generation), int8(&most)];
                let file = include_str!("../../sql/operate/held_events.sql");
                self.database.query(Purpose::Admin, file, &parameters).await?
            }
            Table::Retry => {
                let parameters = [
                    text(&workflow),
                    text(&state),
                    int8(&cursor),
                    int8(&offset),
                    int4(&index),
                    int4(&generation),
                    int8(&most),
                ];
                let file = include_str!("../../sql/operate/waiting_events.sql");
                self.database.query(Purpose::Admin, file, &parameters).await?
            }
            Table::Stored => return Ok(None),
        };
        let Stretch { found, looked_at, .. } = stretch(&rows);
        Ok((looked_at <= FEW).then_some(found))
    }

    /// Looks at the next rows of one cursor.
    async fn walk(&self, mark: Mark, state: Option<&str>, most: i64) -> Result<Stretch, Error> {
        let Place { cursor: CursorId(cursor), offset, index, generation } = mark.place;
        let states = state.map(|state| vec![state]);
        let parameters = [int8(&cursor), int8(&offset), int4(&index), int4(&generation), int8(&most), texts(&states)];
        let rows = match mark.table {
            Table::Stored => {
                let file = include_str!("../../sql/operate/stored_events.sql");
                self.database.query(Purpose::Admin, file, &parameters).await?
            }
            Table::Held | Table::Retry => {
                let file = include_str!("../../sql/operate/retry_events.sql");
                self.database.query(Purpose::Admin, file, &parameters).await?
            }
        };
        Ok(stretch(&rows))
    }
}

fn stretch(rows: &[tokio_postgres::Row]) -> Stretch {
    let mut stretch = Stretch { found: Vec::new(), edge: None, looked_at: 0 };
    for row in rows {
        match row.get("is_edge") {
            true => {
                (stretch.edge, stretch.looked_at) = (Some(claim::place(row)), i64::from(row.get::<_, i32>("sends")));
            }
            false => stretch.found.push((claim::place(row), summary(row))),
        }
    }
    stretch
}

pub(super) fn summary(row: &tokio_postgres::Row) -> Summary {
    let place = claim::place(row);
    let (topic, partition): (String, i32) = (row.get("topic"), row.get("partition"));
    Summary {
        id: place.to_string(),
        workflow: row.get("workflow"),
        state: row.get("state"),
        held: row.get("held"),
        in_doubt: row.get("in_doubt"),
        attempts: row.get("sends"),
        key: row.get("key"),
        event_type: row.get("event_type"),
        source: format!("{topic}/{partition}/{}", place.offset),
        created_at: row.get("created_at"),
        due: row.get("due"),
        first_attempt_at: row.get("first_attempt_at"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reads_back_as_it_was_written_and_nothing_else_does() {
        for table in [Table::Held, Table::Retry, Table::Stored] {
            let mark =
                Mark { table, place: Place { cursor: CursorId(i64::MAX), offset: -1, index: 7, generation: 1000 } };
            assert_eq!(mark.write().parse::<Mark>().ok(), Some(mark));
        }
        for text in ["", "r", "x.1.2.3.4", "r.1.2.3", "r.1.2.3.4.5", "r.a.2.3.4", "s.1.2.3.99999999999"] {
            assert!(text.parse::<Mark>().is_err(), "{text}");
        }
    }
}
