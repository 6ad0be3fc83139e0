//! What has a place of its own: events that wait in retry, and dead letters. Each is to fit what is known of its event otherwise.

use super::outbox::{Cursor, Found};
use super::{Error, Kind, event_id};
use crate::outbox::sql::{int4, int8};
use crate::outbox::{Database, Purpose};

/// Rows that one statement looks at.
const AT_ONCE: i64 = 2_000;

#[derive(Clone, Copy)]
enum What {
    Retries,
    Letters,
}

/// Goes through both, and adds to what was found.
pub async fn look(database: &Database, cursor: &Cursor, found: &mut Found) -> Result<(), Error> {
    for what in [What::Retries, What::Letters] {
        let (mut offset, mut index, mut generation) = (i64::MIN, -1i32, -1i32);
        loop {
            let parameters = [int8(&cursor.id.0), int8(&offset), int4(&index), int4(&generation), int8(&AT_ONCE)];
            let file = match what {
                What::Retries => include_str!("../../sql/verify/retries.sql"),
                What::Letters => include_str!("../../sql/verify/letters.sql"),
            };
            let rows = database.query(Purpose::Admin, file, &parameters).await?;
            let mut is_over = true;
            for row in &rows {
                let (at, count): (i64, i64) = (row.get("record_offset"), row.get("events"));
                let (i, of): (i32, i32) = (row.get("event_index"), row.get("generation"));
                let mut gap = |kind, message: &str| {
                    let event = Some(event_id(cursor.id, at, i, of));
                    found.gaps.push(cursor.gap(kind, (at, at + 1), event, message));
                };
                match row.get::<_, &str>("kind") {
                    "edge" => (offset, index, generation, is_over) = (at, i, of, false),
                    "beside" => found.unended += count,
                    "unstored" => gap(Kind::Stuck, "it waits and is not stored: nothing can deliver it"),
                    // Nothing else is in the answers.
                    _ => gap(Kind::Twice, "it counts as delivered, and is a dead letter"),
                }
            }
            if is_over {
                break;
            }
        }
    }
    Ok(())
}
