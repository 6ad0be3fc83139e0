//! Batches whose events are alike are stored by a function of their own: what it leaves behind is what the other one does.

use oncebox::event::ProcessId;
use oncebox::outbox::sql::Schema;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use crate::fences::{FENCE, TIMELINE};
use crate::support::TestDatabase;
use crate::support::process::migrated;

/// What one statement is to store: a batch for each cursor, and the events of all of them.
#[derive(Default)]
pub struct Columns {
    pub process: ProcessId,
    pub ids: Vec<i64>,
    pub epochs: Vec<i64>,
    pub expected: Vec<i64>,
    pub next: Vec<i64>,
    pub delivery: Vec<i64>,
    pub counts: Vec<i32>,
    pub bytes: Vec<i64>,
    pub filtered: Vec<&'static str>,
    pub tombstones: Vec<&'static str>,
    pub cursors: Vec<i64>,
    pub offsets: Vec<i64>,
    pub keys: Vec<String>,
    pub source_ats: Vec<Option<i64>>,
    pub bodies: Vec<Vec<u8>>,
}

impl Columns {
    /// A batch of a cursor that stands at `expected`, with events of three bytes at these offsets.
    pub fn batch(&mut self, (id, epoch, delivery): (i64, i64, i64), expected: i64, next: i64, offsets: &[i64]) {
        self.ids.push(id);
        self.epochs.push(epoch);
        self.delivery.push(delivery);
        self.expected.push(expected);
        self.next.push(next);
        self.counts.push(i32::try_from(offsets.len()).expect("few"));
        self.bytes.push(3 * i64::try_from(offsets.len()).expect("few"));
        self.filtered.push("{}");
        self.tombstones.push("{}");
        for offset in offsets {
            self.cursors.push(id);
            self.offsets.push(*offset);
            self.keys.push(format!("{id}-{offset}"));
            self.bodies.push(format!("{:03}", (offset + id) % 1_000).into_bytes());
        }
    }

    /// By the function for events that are alike.
    pub async fn append_alike(&self, client: &Client, schema: &str) -> Vec<Row> {
        let text = Schema::new(schema).text(include_str!("../../sql/ingest/append_alike.sql"));
        let all = self.bodies.concat();
        let sizes: Vec<i32> = self.bodies.iter().map(|body| i32::try_from(body.len()).expect("few")).collect();
        let starts: Vec<i32> = sizes.iter().scan(1, |next, size| Some(std::mem::replace(next, *next + size))).collect();
        let parameters: [&(dyn ToSql + Sync); 20] = [
            &self.process,
            &self.ids,
            &self.epochs,
            &self.expected,
            &self.next,
            &self.delivery,
            &self.counts,
            &self.bytes,
            &self.filtered,
            &self.tombstones,
            &self.cursors,
            &self.offsets,
            &self.keys,
            &self.source_ats,
            &all,
            &starts,
            &sizes,
            &"OrderChanged",
            &"text/plain",
            &9_i64,
        ];
        client.query(&*text, &parameters).await.expect("it runs")
    }

    /// By the function for all plain events, which is told of each what they have in common.
    pub async fn append_events(&self, client: &Client, schema: &str) -> Vec<Row> {
        let text = Schema::new(schema).text(include_str!("../../sql/ingest/append_events.sql"));
        let many = self.cursors.len();
        let (types, content_types) = (vec!["OrderChanged"; many], vec!["text/plain"; many]);
        let (indexes, versions) = (vec![0_i32; many], vec![9_i64; many]);
        let (traceparents, lanes) = (vec![None::<&str>; many], vec![None::<i64>; many]);
        let (fingerprints, remembered) = (vec![None::<&[u8]>; many], vec![0.0_f64; many]);
        let parameters: [&(dyn ToSql + Sync); 26] = [
            &self.process,
            &self.ids,
            &self.epochs,
            &self.expected,
            &self.next,
            &self.delivery,
            &self.counts,
            &self.bytes,
            &self.filtered,
            &self.tombstones,
            &self.cursors,
            &self.offsets,
            &indexes,
            &self.keys,
            &types,
            &content_types,
            &traceparents,
            &self.source_ats,
            &versions,
            &self.bodies,
            &lanes,
            &None::<&str>,
            &None::<&str>,
            &None::<i64>,
            &fingerprints,
            &remembered,
        ];
        client.query(&*text, &parameters).await.expect("it runs")
    }
}

/// Four cursors at offset 0 that this process reads and delivers.
async fn stand(process: ProcessId) -> TestDatabase {
    let database = TestDatabase::new().await;
    migrated(&database);
    database
        .execute(&format!(
            "insert into oncebox.cursor (id, workflow, cluster, topic, topic_id, partition, start_offset, next_offset, claimed_to,
                                         generation, delivery_epoch, owner, owner_epoch)
             select n, 'w', 'c', 't', 'i', n, 0, 0, 0, 1000, {FENCE}, '{process}'::uuid, {FENCE} from generate_series(1, 4) as n;
             insert into oncebox.delivery (cursor, workflow, owner, epoch, lease_until, settled_to, timeline)
             select n, 'w', '{process}'::uuid, {FENCE}, 'infinity', 0, {TIMELINE} from generate_series(1, 4) as n"
        ))
        .await;
    database
}

/// Everything that an append may change, but for when that was.
async fn stored(database: &TestDatabase) -> Vec<String> {
    let rows = database
        .query(
            "select (to_jsonb(o) - 'day' - 'created_at')::text from oncebox.outbox as o
             union all
             select (to_jsonb(l) - 'day')::text from oncebox.ledger as l
             union all
             select to_jsonb(c)::text from oncebox.cursor as c
             union all
             select (to_jsonb(d) - 'timeline')::text from oncebox.delivery as d
             union all
             select to_jsonb(s)::text from oncebox.seen as s
             order by 1",
            &[],
        )
        .await;
    rows.iter().map(|row| row.get(0)).collect()
}

/// Cursor, whether its events are claimed, generation, and what is said of events that were left out.
type Answer = (i64, Option<bool>, Option<i32>, Option<i64>, bool);

fn answered(rows: &[Row]) -> Vec<Answer> {
    let one = |row: &Row| {
        (row.get("id"), row.get("claimed"), row.get("generation"), row.get("left_offset"), row.get("suppressed"))
    };
    let mut answers: Vec<Answer> = rows.iter().map(one).collect();
    answers.sort_unstable();
    answers
}

#[tokio::test]
async fn what_is_alike_is_stored_as_what_is_not() {
    let process = ProcessId::new_v4();
    let (one, other) = (stand(process).await, stand(process).await);
    // With some of the source times, and without any; each after what the ones before have stored.
    for (turn, source_ats) in [(0, vec![Some(5), None, Some(7), None, Some(8), Some(9)]), (1, Vec::new())] {
        let mut columns = Columns { process, source_ats, ..Columns::default() };
        let from = 4 * turn;
        columns.batch((3, FENCE, FENCE), from, from + 4, &[]);
        (columns.filtered[0], columns.tombstones[0]) = ("{[0,2),[3,4)}", "{[2,3)}");
        columns.batch((1, FENCE, FENCE), from, from + 4, &[from, from + 2, from + 3]);
        columns.filtered[1] = "{[1,2)}";
        // Of another epoch: nothing of it is stored.
        columns.batch((4, FENCE - 1, FENCE), 0, 2, &[0, 1]);
        // Read, and not claimed.
        columns.batch((2, FENCE, -1), from, from + 4, &[from + 1]);
        let alike = columns.append_alike(&one.client, &one.schema).await;
        let unlike = columns.append_events(&other.client, &other.schema).await;
        assert_eq!(answered(&alike), answered(&unlike), "turn {turn}");
        let moved: Vec<(i64, Option<bool>)> = answered(&alike).iter().map(|answer| (answer.0, answer.1)).collect();
        assert_eq!(moved, [(1, Some(true)), (2, Some(false)), (3, Some(true))], "turn {turn}");
        assert_eq!(stored(&one).await, stored(&other).await, "turn {turn}");
    }
    let counts = "select (select count(*) from oncebox.outbox) * 100 + (select count(*) from oncebox.ledger)";
    assert_eq!((one.count(counts).await, other.count(counts).await), (806, 806), "eight events, six batches");
}
