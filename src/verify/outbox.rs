//! What Postgres knows of the records that were read: the ledger, the events, their ends, and dead letters.

use super::offsets::Offsets;
use super::{Counts, Error, Gap, Kind, event_id};
use crate::event::CursorId;
use crate::outbox::Database;
use crate::outbox::sql::{int4, int8, text};

/// Appends that one statement looks at: some ten thousand events.
const AT_ONCE: i64 = 50;

/// Where one partition's reading stands, and what is on record of its offsets.
pub struct Cursor {
    pub id: CursorId,
    pub topic: String,
    pub topic_id: String,
    pub partition: i32,
    pub next_offset: i64,
    /// Of events that came over HTTP: there is no record to be passed over, and no ledger.
    is_given: bool,
    /// The first offset that is on record.
    first_known: Option<i64>,
    /// Left out knowingly.
    pub skipped: Offsets,
    /// Read without the outbox.
    pub direct: Offsets,
}

impl Cursor {
    /// What the ledger should have: what lies before is past its retention.
    pub fn kept(&self) -> Offsets {
        let from = self.first_known.filter(|_| !self.is_given).unwrap_or(self.next_offset);
        Offsets::from(from..self.next_offset)
    }

    /// From where on anything is known.
    pub fn known_from(&self) -> i64 {
        let direct = self.direct.ranges().first().map(|range| range.start);
        [self.first_known, direct].into_iter().flatten().min().unwrap_or(self.next_offset)
    }
}

pub async fn cursors(database: &Database, workflow: &str) -> Result<Vec<Cursor>, Error> {
    let rows = database.ask_slowly(include_str!("../../sql/verify/cursors.sql"), &[text(&workflow)]).await?;
    let cursor = |row: &tokio_postgres::Row| Cursor {
        id: CursorId(row.get("id")),
        topic: row.get("topic"),
        topic_id: row.get("topic_id"),
        partition: row.get("partition"),
        next_offset: row.get("next_offset"),
        is_given: row.get("is_given"),
        first_known: row.get("known_from"),
        skipped: Offsets::read(row.get("skipped")),
        direct: Offsets::read(row.get("direct")),
    };
    Ok(rows.iter().map(cursor).collect())
}

/// What was found of one partition.
pub struct Found {
    pub counts: Counts,
    /// What the ledger has.
    pub reached: Offsets,
    /// Of that, what has no disposition.
    pub nothing: Offsets,
    pub gaps: Vec<Gap>,
}

/// Goes through all that is on record of a cursor.
pub async fn look(database: &Database, cursor: &Cursor, mut tell: impl FnMut(i64)) -> Result<Found, Error> {
    let (mut counts, mut gaps) = (Counts::default(), Vec::new());
    let (mut reached, mut nothing) = (Vec::new(), Vec::new());
    let (mut offset, mut generation) = (-1i64, -1i32);
    loop {
        let parameters = [int8(&cursor.id.0), int8(&offset), int4(&generation), int8(&AT_ONCE)];
        let file = match cursor.is_given {
            true => include_str!("../../sql/verify/given.sql"),
            false => include_str!("../../sql/verify/page.sql"),
        };
        let rows = database.ask_slowly(file, &parameters).await?;
        let mut is_over = true;
        for row in &rows {
            let (from, to, count): (i64, i64, i64) = (row.get("from_offset"), row.get("to_offset"), row.get("events"));
            let (index, of): (i32, i32) = (row.get("event_index"), row.get("generation"));
            let mut gap = |kind, event: bool, message: String| {
                let source = format!("{}/{}/{from}", cursor.topic, cursor.partition);
                let event = event.then(|| event_id(cursor.id, from, index, of));
                gaps.push(Gap { kind, source, from, to, event, message });
            };
            match row.get::<_, &str>("kind") {
                "edge" => (offset, generation, is_over) = (from, of, false),
                "reach" => reached.push(from..to),
                "none" => nothing.push(from..to),
                "completed" => counts.delivered += count,
                "cancelled" => counts.cancelled += count,
                "discarded" => counts.dead += count,
                "replayed" => counts.replayed += count,
                "waiting" => counts.waiting += count,
                "filtered" => counts.filtered += count,
                "tombstones" => counts.tombstones += count,
                "suppressed" => counts.suppressed += count,
                "twice" => gap(Kind::Twice, false, "filtered or suppressed, and with events all the same".to_owned()),
                "stuck" => gap(Kind::Stuck, true, "stored, not ended, and nothing will deliver it".to_owned()),
                "no_letter" => {
                    gap(Kind::NoDeadLetter, true, "it ended as a dead letter, which is not there".to_owned());
                }
                "miscounted" if count < 0 => {
                    gap(Kind::Miscounted, false, format!("{} events of these records are not there any more", -count));
                }
                // Whatever else there may be too many of.
                _ => gap(Kind::Miscounted, false, format!("{count} events more than were stored")),
            }
        }
        tell(offset);
        if is_over {
            break;
        }
    }
    Ok(Found { counts, reached: Offsets::of(reached), nothing: Offsets::of(nothing), gaps })
}
