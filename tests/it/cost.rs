//! What statements cost, where that can be told exactly: the WAL they write, and how many there are. How long they take is the
//! benchmark's business; the way they find their rows is in `plans`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use oncebox::event::{CursorId, Place, ProcessId, Record};
use oncebox::outbox::append;
use oncebox::outbox::attempt::{EventRef, Right};
use oncebox::outbox::batch::{Batch, Holding};
use oncebox::outbox::settle::{self, Completion, Settled};
use oncebox::transform::{Disposition, Origin, Transformer};

use crate::fences::{FENCE, TIMELINE};
use crate::support::process::{Config, migrated};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, attempt, eventually, skip};

/// Cursors that one process reads and delivers.
const CURSORS: i64 = 4;

/// A schema in which `process` holds them all, under epoch 7, and has read nothing yet.
async fn held(process: ProcessId) -> TestDatabase {
    let database = TestDatabase::new().await;
    migrated(&database);
    database
        .execute(&format!(
            "insert into oncebox.workflow (id) values ('orders');
             insert into oncebox.cursor (id, workflow, cluster, topic, topic_id, partition, start_offset, next_offset, claimed_to,
                                         owner, owner_epoch, delivery_epoch)
             select n, 'orders', 'c', 't', 'i', n, 0, 0, 0, '{process}', {FENCE}, {FENCE} from generate_series(1, {CURSORS}) as n;
             insert into oncebox.delivery (cursor, workflow, owner, epoch, lease_until, settled_to, timeline)
             select n, 'orders', '{process}', {FENCE}, now() + interval '1 hour', 0, {TIMELINE}
               from generate_series(1, {CURSORS}) as n"
        ))
        .await;
    database
}

/// Bytes of WAL that a statement writes.
async fn wal_bytes(database: &TestDatabase, statement: &str) -> f64 {
    let rows = database.query(&format!("explain (analyze, wal, costs off, timing off) {statement}"), &[]).await;
    let lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let counted = lines.iter().find_map(|line| line.split("bytes=").nth(1).filter(|_| line.contains("WAL:")));
    let counted = counted.and_then(|text| text.split_whitespace().next()?.parse().ok());
    counted.unwrap_or_else(|| panic!("no WAL in {lines:?}"))
}

/// Storing events of several cursors and writing their deliveries down, as often as this: what the median batch writes. A page that a
/// checkpoint has seen is written whole the next time it is touched, and when others make checkpoints is not this test's business.
#[tokio::test]
async fn an_event_writes_at_most_twice_its_bytes_of_wal() {
    let process = ProcessId::new_v4();
    let database = held(process).await;
    let (batches, each, body) = (9, 250, 500);
    let mut written = Vec::new();
    for batch in 0..batches {
        let (from, to) = (batch * each, (batch + 1) * each);
        let rows = format!("from generate_series(1, {CURSORS}) as c, generate_series({from}::bigint, {to} - 1) as n");
        let of_cursor =
            |value: &str| format!("array(select {value} from generate_series(1, {CURSORS}) as c order by c)");
        let of_event = |value: &str| format!("array(select {value} {rows} order by c, n)");
        let of_block = |value: &str| format!("array(select {value} {rows} group by c, n >> 6 order by c, n >> 6)");
        let stored = format!(
            "select * from oncebox.append_alike('{process}', {cursors}, {epochs}, {expected}, {next}, {epochs}, {events}, {bytes},
                 {none}, {none}, {event_cursors}, {offsets}, {keys}, {times},
                 convert_to(repeat('x', {each} * {CURSORS} * {body}), 'UTF8'), {starts}, {sizes}, 'OrderChanged', 'application/json', 1)",
            cursors = of_cursor("c::bigint"),
            epochs = of_cursor(&format!("{FENCE}::bigint")),
            expected = of_cursor(&format!("{from}::bigint")),
            next = of_cursor(&format!("{to}::bigint")),
            events = of_cursor(&each.to_string()),
            bytes = of_cursor(&format!("{each} * {body}::bigint")),
            none = of_cursor("'{}'::text"),
            event_cursors = of_event("c::bigint"),
            offsets = of_event("n"),
            keys = of_event("'sales-orders-' || lpad(n::text, 22, '0')"),
            times = of_event("1700000000000"),
            starts = of_event(&format!("((c - 1) * {each} + n - {from})::integer * {body} + 1")),
            sizes = of_event(&body.to_string()),
        );
        let settled = format!(
            "select * from oncebox.settle_held({block_cursors}, {blocks}, {zeros}, {zeros}, {days}, {bits}, 200, '{process}',
                 {cursors}, {events}, {bytes}, {epochs})",
            block_cursors = of_block("c::bigint"),
            blocks = of_block("n >> 6"),
            zeros = of_block("0"),
            days = of_block("oncebox.today()"),
            bits = of_block("bit_or(1::bigint << (n & 63)::integer)"),
            cursors = of_cursor("c::bigint"),
            events = of_cursor(&format!("{each}::bigint")),
            bytes = of_cursor(&format!("{each} * {body}::bigint")),
            epochs = of_cursor(&format!("{FENCE}::bigint")),
        );
        written.push(wal_bytes(&database, &stored).await + wal_bytes(&database, &settled).await);
    }
    let done = database.count("select count(*) from oncebox.done").await;
    assert_eq!(done, i64::from(batches * each) * CURSORS);
    written.sort_by(f64::total_cmp);
    let per_byte = written[written.len() / 2] / (f64::from(each * body) * CURSORS as f64);
    assert!(per_byte <= 2.0, "{per_byte:.2} bytes of WAL for each byte of a body; batches wrote {written:?}");
}

/// Whether this server counts statements. What counts can be created where the server has not loaded it, but not be asked.
async fn counts_statements(database: &TestDatabase) -> bool {
    // Another test may be creating it.
    let _ = database.client.batch_execute("create extension if not exists pg_stat_statements").await;
    let counts = database.client.batch_execute("select calls from pg_stat_statements limit 1").await.is_ok();
    if !counts {
        skip("this Postgres has no pg_stat_statements");
    }
    counts
}

/// How often statements were sent that name something of this test's schema.
async fn sent(database: &TestDatabase) -> i64 {
    let counted = "select coalesce(sum(calls), 0)::int8 from pg_stat_statements where query like '%' || $1 || '.%'";
    database.client.query_one(counted, &[&database.schema]).await.expect("it counts").get(0)
}

/// How often bodies were read back: by claims of what waits in the outbox, and by those of retries, where they found some.
async fn read_back(database: &TestDatabase) -> i64 {
    let counted =
        "select (coalesce(sum(calls) filter (where query like '%' || $1 || '.outbox as %' and query like '%body%'), 0)
                           + coalesce(sum(rows) filter (where query like '%' || $1 || '.claim_retries(%'), 0))::int8
                     from pg_stat_statements";
    database.client.query_one(counted, &[&database.schema]).await.expect("it counts").get(0)
}

/// Records of one partition, as its reader passes them to the writer.
fn batch(transformer: &Transformer, holding: Holding, records: i64) -> Batch {
    let mut drafts = Vec::new();
    for offset in 0..records {
        let (key, value) = (Some(offset.to_string().into_bytes()), Some(br#"{"id":1}"#.to_vec()));
        let record = Record { offset, timestamp: Some(1_700_000_000_000), key, value, headers: Vec::new() };
        match transformer.apply(&record, &holding.origin) {
            Disposition::Events { drafts: made, .. } => drafts.extend(made),
            Disposition::Filtered | Disposition::Tombstone | Disposition::Rejected(_) => panic!("an event"),
        }
    }
    Batch {
        holding: Arc::new(holding),
        expected: 0,
        next: records,
        drafts,
        dead: Vec::new(),
        filtered: Vec::new(),
        tombstones: Vec::new(),
        loads: Vec::new(),
    }
}

/// Exactly: two for a thousand events that are there at the same time, from as many partitions as there are. How many are there at the
/// same time depends on the machine; see below, and the benchmark.
#[tokio::test]
async fn a_thousand_events_are_stored_by_one_statement_and_written_down_by_one() {
    let process = ProcessId::new_v4();
    let test = held(process).await;
    if !counts_statements(&test).await {
        return;
    }
    let workflow = attempt::workflow("http://127.0.0.1:9/events", "");
    let transformer = Transformer::new(Arc::clone(&workflow)).expect("no program");
    let batches: Vec<Batch> = (1..=CURSORS)
        .map(|cursor| {
            let partition = i32::try_from(cursor).expect("a few");
            let origin = Origin { cluster: "c".into(), topic: "t".into(), topic_id: "i".into(), partition };
            batch(&transformer, Holding::new(Arc::clone(&workflow), origin, CursorId(cursor), FENCE, 0), 250)
        })
        .collect();
    let claims: HashMap<CursorId, i64> = (1..=CURSORS).map(|cursor| (CursorId(cursor), FENCE)).collect();
    let database = test.opened();
    let before = sent(&test).await;
    let stored = append::append(&database, process, &batches, &claims).await.expect("it runs");
    assert_eq!(sent(&test).await - before, 1, "an append");
    assert!(batches.iter().all(|batch| stored[&batch.holding.cursor].claimed));
    let completions: Vec<Completion> = batches
        .iter()
        .flat_map(|batch| batch.drafts.iter().map(|draft| (batch.holding.cursor, draft)))
        .map(|(cursor, draft)| {
            let place = Place { cursor, offset: draft.offset, index: draft.index, generation: 0 };
            let (day, body_bytes) = (stored[&cursor].day, draft.body.len());
            let event = EventRef { place, day, body_bytes, record_at: draft.record_at, lane: None };
            Completion { event, right: Right::Range { epoch: FENCE }, sends: 1, status: Some(200) }
        })
        .collect();
    let settled = settle::completed(&database, process, &completions).await.expect("it runs");
    assert_eq!(sent(&test).await - before, 2, "and a settlement");
    assert_eq!(settled.len(), 1_000);
    assert!(settled.iter().all(|settled| *settled == Settled::Recorded));
}

/// Slow machines and busy ones: nothing is in doubt, and no delivery is lost.
fn patient(topic: &Topic, database: &TestDatabase, receiver: &TestReceiver) -> Config {
    let mut config = Config::new(topic, database, receiver);
    config.delivery = "concurrency: 512".to_owned();
    (config.timeout, config.lease) = ("20s", "60s");
    config
}

/// As many as are claimed ahead at once are handed on in memory, however slow the machine is: 2,048 with 512 requests at a time.
#[tokio::test]
async fn what_is_stored_and_sent_at_once_is_not_read_back() {
    let (topic, database, receiver) = (Topic::new(4).await, TestDatabase::new().await, TestReceiver::start().await);
    if !counts_statements(&database).await {
        return;
    }
    let _relay = Relay::start(&patient(&topic, &database, &receiver));
    let (waves, wave) = (6, 1_000);
    let mut at_first = 0;
    for number in 0..waves {
        topic.send_orders(number * wave..(number + 1) * wave);
        let wanted = i64::from((number + 1) * wave);
        let completed = "select coalesce(sum(completed), 0)::int8 from oncebox.delivery";
        eventually("all are written down", PATIENCE, async || {
            (database.count(completed).await == wanted).then_some(())
        })
        .await;
        // What is stored before its delivery is taken has to be read. From the second wave on all of them are held.
        if number == 1 {
            at_first = read_back(&database).await;
        }
    }
    assert_eq!(read_back(&database).await - at_first, 0, "bodies were read back");
}

/// For every thousand events: the partitions of two reads are at worst stored one by one, and a batch of deliveries that others wait
/// for has hundreds.
const PER_THOUSAND: f64 = 12.0;
/// Deliveries that nobody waits for are gathered for ten milliseconds; whoever polls and keeps leases does so a few dozen times.
const PER_SECOND: f64 = 200.0;

/// Counted by Postgres, with nothing going wrong and a backlog to read. Some statements come with events and some with the time that
/// passes, so that a slow machine sends more for each event: the bound has both. The benchmark has the figure at saturation, of which the
/// limit is 5.
#[tokio::test]
async fn statements_are_sent_for_batches_and_not_for_events() {
    let (topic, database, receiver) = (Topic::new(4).await, TestDatabase::new().await, TestReceiver::start().await);
    if !counts_statements(&database).await {
        return;
    }
    let events = 20_000;
    topic.send_orders(0..events);
    let _relay = Relay::start(&patient(&topic, &database, &receiver));
    eventually("the first come", PATIENCE, async || (receiver.applied() > 0).then_some(())).await;
    let (began, before) = (Instant::now(), sent(&database).await);
    let delivered_before = receiver.applied();
    let all = usize::try_from(events).expect("it fits");
    eventually("all are delivered", PATIENCE, async || (receiver.applied() == all).then_some(())).await;
    let statements = (sent(&database).await - before) as f64;
    let (seconds, delivered) = (began.elapsed().as_secs_f64(), (all - delivered_before) as f64);
    let most = PER_THOUSAND * delivered / 1_000.0 + PER_SECOND * (seconds + 1.0);
    assert!(
        statements <= most,
        "{statements} statements for {delivered} events in {seconds:.1} s, where {most:.0} are bearable"
    );
}
