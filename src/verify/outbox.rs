//! What Postgres knows of the records that were read: the ledger, the events, their ends, and dead letters.

use super::offsets::Offsets;
use super::{Counts, Error, Gap, Kind, event_id};
use crate::event::CursorId;
use crate::outbox::sql::{int4, int8, text};
use crate::outbox::{Database, Purpose};

/// Appends that one statement looks at: some ten thousand events.
const AT_ONCE: i64 = 50;

/// Where one partition's reading stands, and what is on record of its offsets.
pub struct Cursor {
    pub id: CursorId,
    pub topic: String,
    pub topic_id: String,
    pub partition: i32,
    /// The first that was ever to be read.
    start_offset: i64,
    pub next_offset: i64,
    /// Of events that came over HTTP: there is no record to be passed over, and no ledger.
    is_given: bool,
    /// Whether it is known what went with each day that is not there any more.
    pub are_days_known: bool,
    /// The first offset that is on record.
    first_known: Option<i64>,
    /// Past their retention.
    gone: Offsets,
    /// Left out knowingly.
    pub skipped: Offsets,
    /// Read without the outbox.
    pub direct: Offsets,
}

impl Cursor {
    /// What the ledger should have. Where a day went that nobody noted, what lies before the first that is on record may have gone with it.
    pub fn kept(&self) -> Offsets {
        let first = match (self.is_given, self.are_days_known) {
            (true, _) => self.next_offset,
            (false, true) => self.first_known.unwrap_or(self.next_offset).min(self.start_offset),
            (false, false) => self.first_known.unwrap_or(self.next_offset),
        };
        Offsets::from(first..self.next_offset).without(&self.gone)
    }

    /// From where on anything is known.
    pub fn known_from(&self) -> i64 {
        let first = |offsets: &Offsets| offsets.ranges().first().map(|range| range.start);
        let known = [self.first_known, first(&self.kept()), first(&self.direct)];
        known.into_iter().flatten().min().unwrap_or(self.next_offset)
    }

    /// Something that is not as it must be, of these offsets, or of an event of theirs.
    pub fn gap(&self, kind: Kind, (from, to): (i64, i64), event: Option<String>, message: impl Into<String>) -> Gap {
        let source = format!("{}/{}/{from}", self.topic, self.partition);
        Gap { kind, source, from, to, event, message: message.into() }
    }
}

pub async fn cursors(database: &Database, workflow: &str) -> Result<Vec<Cursor>, Error> {
    let file = include_str!("../../sql/verify/cursors.sql");
    let rows = database.query(Purpose::Admin, file, &[text(&workflow)]).await?;
    let cursor = |row: &tokio_postgres::Row| Cursor {
        id: CursorId(row.get("id")),
        topic: row.get("topic"),
        topic_id: row.get("topic_id"),
        partition: row.get("partition"),
        start_offset: row.get("start_offset"),
        next_offset: row.get("next_offset"),
        is_given: row.get("is_given"),
        are_days_known: row.get("are_days_known"),
        first_known: row.get("known_from"),
        gone: Offsets::read(row.get("gone")),
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
    /// Events that are stored and have not ended.
    pub unended: i64,
    pub gaps: Vec<Gap>,
}

/// Goes through all that is on record of a cursor.
pub async fn look(database: &Database, cursor: &Cursor, mut tell: impl FnMut(i64)) -> Result<Found, Error> {
    let (mut counts, mut unended, mut gaps) = (Counts::default(), 0, Vec::new());
    let (mut reached, mut nothing) = (Vec::new(), Vec::new());
    let (mut offset, mut generation) = (-1i64, -1i32);
    loop {
        let parameters = [int8(&cursor.id.0), int8(&offset), int4(&generation), int8(&AT_ONCE)];
        let file = match cursor.is_given {
            true => include_str!("../../sql/verify/given.sql"),
            false => include_str!("../../sql/verify/page.sql"),
        };
        let rows = database.query(Purpose::Admin, file, &parameters).await?;
        let mut is_over = true;
        for row in &rows {
            let (from, to, count): (i64, i64, i64) = (row.get("from_offset"), row.get("to_offset"), row.get("events"));
            let (index, of): (i32, i32) = (row.get("event_index"), row.get("generation"));
            let mut gap = |kind, event: bool, message: String| {
                let event = event.then(|| event_id(cursor.id, from, index, of));
                gaps.push(cursor.gap(kind, (from, to), event, message));
            };
            match row.get::<_, &str>("kind") {
                "edge" => (offset, generation, is_over) = (from, of, false),
                "reach" => reached.push(from..to),
                "none" => nothing.push(from..to),
                "completed" => counts.delivered += count,
                "cancelled" => counts.cancelled += count,
                "discarded" => counts.dead += count,
                "replayed" => counts.replayed += count,
                "waiting" => {
                    counts.waiting += count;
                    // Over HTTP each has a row of its own until it ends, and is counted by that: in `places`.
                    unended += if cursor.is_given { 0 } else { count };
                }
                // Made of dead letters, and not counted once more.
                "again" => unended += count,
                "filtered" => counts.filtered += count,
                "tombstones" => counts.tombstones += count,
                "suppressed" => counts.suppressed += count,
                "twice" => gap(Kind::Twice, false, "filtered or suppressed, and with events all the same".to_owned()),
                "stuck" => {
                    unended += 1;
                    gap(Kind::Stuck, true, "stored, not ended, and nothing will deliver it".to_owned());
                }
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
    Ok(Found { counts, reached: Offsets::of(reached), nothing: Offsets::of(nothing), unended, gaps })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(is_given: bool, are_days_known: bool, first_known: Option<i64>) -> Cursor {
        Cursor {
            id: CursorId(1),
            topic: "t".to_owned(),
            topic_id: "i".to_owned(),
            partition: 0,
            start_offset: 10,
            next_offset: 100,
            is_given,
            are_days_known,
            first_known,
            gone: Offsets::from(10..30),
            skipped: Offsets::default(),
            direct: Offsets::default(),
        }
    }

    #[test]
    fn what_did_not_go_with_a_day_is_to_be_on_record_from_the_first_offset_on() {
        let rest = Offsets::from(30..100);
        // The first rows of the ledger were deleted, or all of them.
        for first_known in [Some(30), Some(50), None] {
            assert_eq!(cursor(false, true, first_known).kept(), rest, "{first_known:?}");
            assert_eq!(cursor(false, true, first_known).known_from(), 30, "{first_known:?}");
        }
        // Read again from before the first, by a process that does not note that.
        assert_eq!(cursor(false, true, Some(5)).kept(), Offsets::of(vec![5..10, 30..100]));
    }

    #[test]
    fn where_a_day_went_that_nobody_noted_only_what_follows_the_first_row_is_asked_for() {
        assert_eq!(cursor(false, false, Some(50)).kept(), Offsets::from(50..100));
        assert_eq!(cursor(false, false, None).kept(), Offsets::default());
    }

    #[test]
    fn events_over_http_have_no_ledger() {
        assert_eq!(cursor(true, true, Some(50)).kept(), Offsets::default());
        assert_eq!(cursor(true, true, Some(50)).known_from(), 50);
    }
}
