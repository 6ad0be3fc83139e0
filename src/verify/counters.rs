//! The counters, which move with every append and every end, against what is on record. They go on while rows are counted: what is found must
//! lie between what they said before and what they say after.

use jiff::civil::Date;

use super::Error;
use crate::event::CursorId;
use crate::outbox::sql::{date, int4, int8};
use crate::outbox::{Database, Purpose};

/// Rows that one statement looks at.
const AT_ONCE: i64 = 10_000;

/// Where the counters of a cursor stand.
pub struct Counters {
    /// Appended, without the repeats that were suppressed.
    stored: i64,
    suppressed: i64,
    ended: i64,
    /// Of those, what is not past its retention; nothing where that is not known.
    kept: Option<Ends>,
    timeline: String,
    gone_days: i64,
}

/// Events that have ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ends {
    all: i64,
    cancelled: i64,
    discarded: i64,
}

impl Counters {
    /// Whether what is counted in between can be compared with both: no commits were lost, and no day went.
    pub fn is_of_one_time_with(&self, later: &Self) -> bool {
        self.timeline == later.timeline && self.gone_days == later.gone_days
    }
}

/// Nothing for a cursor that is not there.
pub async fn read(database: &Database, CursorId(cursor): CursorId) -> Result<Option<Counters>, Error> {
    let file = include_str!("../../sql/verify/counters.sql");
    let rows = database.query(Purpose::Admin, file, &[int8(&cursor)]).await?;
    Ok(rows.first().map(|row| {
        let kept = Ends {
            all: row.get("kept_ended"),
            cancelled: row.get("kept_cancelled"),
            discarded: row.get("kept_discarded"),
        };
        Counters {
            stored: row.get("stored"),
            suppressed: row.get("suppressed"),
            ended: row.get("ended"),
            kept: row.get::<_, bool>("are_days_known").then_some(kept),
            timeline: row.get("timeline"),
            gone_days: row.get("gone_days"),
        }
    }))
}

/// What differs between the counters and what was found in between: events that have not ended, and records that were suppressed as a whole.
pub fn appended(before: &Counters, after: &Counters, unended: i64, suppressed: i64) -> Vec<String> {
    let mut differences = Vec::new();
    if let Some(counted) = differs(unended, before.stored - after.ended, after.stored - before.ended) {
        differences.push(format!(
            "by the counters `appended`, `suppressed`, `completed`, `cancelled` and `discarded` {counted} events wait, \
             and {unended} are on record"
        ));
    }
    let counted = after.suppressed;
    if suppressed > counted {
        differences.push(format!("the counter `suppressed` says {counted}, and {suppressed} are on record"));
    }
    differences
}

/// What differs between the counters and the ends that were found in between.
pub fn ended(before: &Counters, after: &Counters, found: &Ends) -> Vec<String> {
    match (&before.kept, &after.kept) {
        (Some(before), Some(after)) => compare(found, before, after),
        (None, _) | (_, None) => Vec::new(),
    }
}

fn compare(found: &Ends, before: &Ends, after: &Ends) -> Vec<String> {
    // How an event ended is told where it was not simply delivered.
    let completed = found.all - found.cancelled - found.discarded;
    let least = before.all - after.cancelled - after.discarded;
    let most = after.all - before.cancelled - before.discarded;
    let each = [
        ("completed", completed, least, most),
        ("cancelled", found.cancelled, before.cancelled, after.cancelled),
        ("discarded", found.discarded, before.discarded, after.discarded),
    ];
    let told = each.into_iter().filter_map(|(name, found, least, most)| {
        let counted = differs(found, least, most)?;
        Some(format!("the counter `{name}` says {counted} for the days that are kept, and {found} are on record"))
    });
    told.collect()
}

/// What was counted, where it is not what was found.
fn differs(found: i64, least: i64, most: i64) -> Option<i64> {
    if found < least {
        Some(least)
    } else if found > most {
        Some(most)
    } else {
        None
    }
}

/// Where ends are on record: all of them, and how an event ended that was not simply delivered.
#[derive(Clone, Copy)]
enum Record {
    Ended,
    Remark,
}

/// The ends that are on record of a cursor.
pub async fn count(database: &Database, CursorId(cursor): CursorId) -> Result<Ends, Error> {
    let mut found = Ends::default();
    for record in [Record::Ended, Record::Remark] {
        let (mut at, mut index, mut generation, mut day) = (i64::MIN, -1i32, -1i32, Date::constant(1970, 1, 1));
        loop {
            let parameters = [int8(&cursor), int8(&at), int4(&index), int4(&generation), date(&day), int8(&AT_ONCE)];
            let file = match record {
                Record::Ended => include_str!("../../sql/verify/ends.sql"),
                Record::Remark => include_str!("../../sql/verify/remarks.sql"),
            };
            let rows = database.query(Purpose::Admin, file, &parameters).await?;
            let Some(last) = rows.first() else { break };
            found.all += last.get::<_, i64>("ended");
            found.cancelled += last.get::<_, i64>("cancelled");
            found.discarded += last.get::<_, i64>("discarded");
            (at, index) = (last.get("place"), last.get("event_index"));
            (generation, day) = (last.get("generation"), last.get("day"));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(all: i64, cancelled: i64, discarded: i64) -> Ends {
        Ends { all, cancelled, discarded }
    }

    #[test]
    fn what_is_found_lies_between_what_was_counted_before_and_after() {
        let (before, after) = (ends(10, 2, 3), ends(14, 3, 5));
        for found in [before, after, ends(12, 2, 4), ends(13, 3, 3)] {
            assert_eq!(compare(&found, &before, &after), [""; 0], "{found:?}");
        }
    }

    #[test]
    fn the_counter_that_differs_is_named() {
        let counted = ends(10, 2, 3);
        let named = |found: Ends| {
            let said = compare(&found, &counted, &counted);
            said.iter().map(|one| one.split('`').nth(1).unwrap().to_owned()).collect::<Vec<String>>()
        };
        // An end that is gone, or one too many.
        assert_eq!(named(ends(9, 2, 3)), ["completed"]);
        assert_eq!(named(ends(11, 2, 3)), ["completed"]);
        // A cancelled or dead event that counts as delivered.
        assert_eq!(named(ends(10, 1, 3)), ["completed", "cancelled"]);
        assert_eq!(named(ends(10, 2, 2)), ["completed", "discarded"]);
    }

    #[test]
    fn events_that_wait_are_what_was_stored_and_has_not_ended() {
        let counters = |stored, ended| Counters {
            stored,
            suppressed: 5,
            ended,
            kept: None,
            timeline: String::new(),
            gone_days: 0,
        };
        let (before, after) = (counters(100, 60), counters(110, 80));
        for unended in [20, 35, 50] {
            assert_eq!(appended(&before, &after, unended, 5), [""; 0], "{unended}");
        }
        for unended in [19, 51] {
            assert!(appended(&before, &after, unended, 5)[0].contains("`appended`"), "{unended}");
        }
        assert!(appended(&before, &after, 30, 6)[0].contains("`suppressed`"));
        assert_eq!(ended(&before, &after, &ends(7, 1, 1)), [""; 0], "what went with some day is not known");
    }
}
