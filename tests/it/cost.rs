//! What statements cost, where that can be told exactly: the way they find their rows, and the WAL they write. How long they
//! take is the benchmark's business.

use std::path::Path;

use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::fences::TIMELINE;
use crate::support::process::{Config, migrated};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually, skip};

const EVENTS: i64 = 20_000;
/// So many that reading them all is dearer than a search for each of a few.
const RETRIES: i64 = 60_000;

/// A cursor with events, half of them done, and a long backlog of retries of ten workflows.
async fn fill(database: &TestDatabase) {
    database
        .execute(&format!(
            "insert into oncebox.outbox (cursor, record_offset, event_index, generation, day, key, event_type, content_type,
                                         created_at, config_version, body)
             select 1, n, 0, 0, timezone('utc', now())::date, 'k', 't', 'text/plain', now(), 1, 'x'
               from generate_series(0, {EVENTS} - 1) as n;
             insert into oncebox.ended (cursor, block, event_index, generation, day, bits, again, tried, tried_at)
             select 1, n >> 6, 0, 0, timezone('utc', now())::date, bit_or(1::int8 << (n & 63)), 0, 0, 0
               from generate_series(0, {EVENTS} / 2) as n group by n >> 6;
             insert into oncebox.retry (cursor, record_offset, event_index, generation, day, workflow, state, sends, counted,
                                        fence, due, in_doubt, event_at)
             select 1, n, 0, 0, timezone('utc', now())::date, 'w' || n % 10, 'retryable', 1, 1, 1, now(), n % 2 = 0, now()
               from generate_series({EVENTS}, {EVENTS} + {RETRIES}) as n"
        ))
        .await;
}

type Parameters<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

async fn plan(database: &TestDatabase, file: &str, parameters: Parameters<'_>) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql").join(file);
    let text = std::fs::read_to_string(path).expect("a statement");
    let text = format!("explain {}", text.replace("oncebox.", &format!("{}.", database.schema)));
    let rows = database.client.query_typed(&text, parameters).await.unwrap_or_else(|error| panic!("{file}: {error:?}"));
    rows.iter().map(|row| row.get(0)).collect()
}

/// The plan that a connection would make and keep for a function now.
async fn kept_plan(database: &TestDatabase, function: &str, arguments: &str) -> Vec<String> {
    let found = database
        .query(
            "select p.prosrc, pg_get_function_identity_arguments(p.oid), p.proconfig
               from pg_proc as p where p.pronamespace = $1::text::regnamespace and p.proname = $2",
            &[&database.schema, &function],
        )
        .await;
    let (source, types, settings): (String, String, Vec<String>) = (found[0].get(0), found[0].get(1), found[0].get(2));
    let (_, body) = source.split_once("return query").expect("a query");
    let body = body.trim_end().trim_end_matches("end").trim_end().trim_end_matches(';');
    let settings: Vec<String> = settings.iter().map(|one| format!("set local {one};")).collect();
    let prepared = format!("begin; {} prepare kept ({types}) as {body}", settings.join(" "));
    database.client.batch_execute(&prepared).await.unwrap_or_else(|error| panic!("{function}: {error:?}"));
    let plan = database.client.simple_query(&format!("explain execute kept({arguments})")).await.expect("a plan");
    database.client.batch_execute("rollback; deallocate kept").await.expect("it is forgotten");
    let line = |message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    };
    plan.into_iter().filter_map(line).collect()
}

const CLAIM: &str = "'w1', gen_random_uuid(), 4, 64, true, null";

/// Every statement that looks for work, while tables are as they are now.
async fn assert_indexed(database: &TestDatabase, tables: &str) {
    let none: Option<Vec<i64>> = None;
    let cursors = (&none as &(dyn ToSql + Sync), Type::INT8_ARRAY);
    let workflow = (&"w1" as &(dyn ToSql + Sync), Type::TEXT);
    let number = |n: &'static i64| (n as &(dyn ToSql + Sync), Type::INT8);
    let plans = [
        ("claim_retries", kept_plan(database, "claim_retries", CLAIM).await),
        ("open_lanes", kept_plan(database, "open_lanes", "'{1}', '{1}', '{7}', gen_random_uuid()").await),
        (
            "settle_retried",
            kept_plan(
                database,
                "settle_retried",
                "'{1}', '{1}', '{0}', '{0}', '{2026-01-01}', '{1}', '{200}', '{1}', '{1}', '{1}'",
            )
            .await,
        ),
        ("end_in_doubt", kept_plan(database, "end_in_doubt", "'w1', 64, false").await),
        ("relay/next_due.sql", plan(database, "relay/next_due.sql", &[workflow.clone(), cursors]).await),
        (
            "relay/claim_waiting.sql",
            plan(
                database,
                "relay/claim_waiting.sql",
                &[number(&1), number(&7), number(&15_000), number(&1_000), number(&1_000_000)],
            )
            .await,
        ),
        (
            "relay/rescue.sql",
            plan(database, "relay/rescue.sql", &[number(&1), workflow, number(&15_000), number(&15_100), number(&8)])
                .await,
        ),
    ];
    for (file, plan) in plans {
        let scans = ["Seq Scan on retry", "Seq Scan on outbox", "Seq Scan on done"];
        // A table without a page costs nothing to read; each statement is planned by what its tables have at that moment.
        let cost = |line: &str| line.split("..").nth(1)?.split(' ').next()?.parse::<f64>().ok();
        let is_bad =
            |line: &&String| scans.iter().any(|scan| line.contains(scan)) && cost(line).is_none_or(|cost| cost >= 1.0);
        let bad: Vec<&String> = plan.iter().filter(is_bad).collect();
        assert!(bad.is_empty(), "{file} reads whole tables that are {tables}: {bad:?}\n{}", plan.join("\n"));
    }
}

#[tokio::test]
async fn whoever_looks_for_work_reads_no_whole_table_be_it_empty_unknown_or_full() {
    let database = TestDatabase::new().await;
    migrated(&database);
    database
        .execute(
            "insert into oncebox.workflow (id) select 'w' || n from generate_series(0, 9) as n;
             insert into oncebox.cursor (id, workflow, cluster, topic, topic_id, partition, start_offset, next_offset, claimed_to,
                                         delivery_epoch)
             values (1, 'w1', 'c', 't', 'i', 0, 0, 20000, 15000, 7);
             insert into oncebox.delivery (cursor, workflow, epoch, settled_to) values (1, 'w1', 7, 15000)",
        )
        .await;
    assert_indexed(&database, "empty").await;
    fill(&database).await;
    assert_indexed(&database, "full and never looked at").await;
    database.execute("analyze oncebox.outbox; analyze oncebox.ended; analyze oncebox.retry").await;
    assert_indexed(&database, "full and known").await;
}

/// Bytes of WAL that a statement writes.
async fn wal_bytes(database: &TestDatabase, statement: &str) -> f64 {
    let rows = database.query(&format!("explain (analyze, wal, costs off, timing off) {statement}"), &[]).await;
    let lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let counted = lines.iter().find_map(|line| line.split("bytes=").nth(1).filter(|_| line.contains("WAL:")));
    let counted = counted.and_then(|text| text.split_whitespace().next()?.parse().ok());
    counted.unwrap_or_else(|| panic!("no WAL in {lines:?}"))
}

#[tokio::test]
async fn an_event_writes_at_most_twice_its_bytes_of_wal() {
    let database = TestDatabase::new().await;
    migrated(&database);
    let process = Uuid::new_v4();
    let (events, body) = (1_000, 600);
    database
        .execute(&format!(
            "insert into oncebox.workflow (id) values ('w');
             insert into oncebox.cursor (id, workflow, cluster, topic, topic_id, partition, start_offset, next_offset, claimed_to,
                                         owner, owner_epoch, delivery_epoch)
             values (1, 'w', 'c', 't', 'i', 0, 0, 0, 0, '{process}', 7, 7);
             insert into oncebox.delivery (cursor, workflow, owner, epoch, lease_until, settled_to, timeline)
             values (1, 'w', '{process}', 7, now() + interval '1 hour', 0, {TIMELINE})"
        ))
        .await;
    // Pages that a checkpoint has seen are written whole once; the first batch is for that.
    let mut written = f64::MAX;
    for batch in 0..3 {
        let (from, to) = (batch * events, (batch + 1) * events);
        let all = |value: &str| format!("array(select {value} from generate_series({from}, {to} - 1) as n)");
        let each = |value: &str| {
            format!(
                "array(select {value} from generate_series({from}::bigint, {to} - 1) as n group by n >> 6 order by n >> 6)"
            )
        };
        let stored = wal_bytes(
            &database,
            &format!(
                "select * from oncebox.append_alike('{process}', array[1]::bigint[], array[7]::bigint[], array[{from}]::bigint[],
                     array[{to}]::bigint[], array[7]::bigint[], array[{events}], array[{events} * {body}]::bigint[],
                     array['{{}}'], array['{{}}'], {cursors}, {offsets}, {keys}, {times}, convert_to(repeat('x', {body} * {events}), 'UTF8'), {starts}, {sizes}, 'OrderChanged',
                     'application/json', 1)",
                cursors = all("1::bigint"),
                offsets = all("n::bigint"),
                keys = all("'sales-orders-' || lpad(n::text, 22, '0')"),
                times = all("1700000000000"),
                starts = all(&format!("(n - {from})::integer * {body} + 1")),
                sizes = all(&body.to_string()),
            ),
        )
        .await;
        let settled = wal_bytes(
            &database,
            &format!(
                "select * from oncebox.settle_held({cursors}, {blocks}, {zeros}, {zeros}, {days}, {bits}, 200, '{process}',
                     array[1]::bigint[], array[{events}]::bigint[], array[{events} * {body}]::bigint[], array[7]::bigint[])",
                cursors = each("1::bigint"),
                blocks = each("n >> 6"),
                zeros = each("0"),
                days = each("timezone('utc', now())::date"),
                bits = each("bit_or(1::bigint << (n & 63)::integer)"),
            ),
        )
        .await;
        written = written.min(stored + settled);
    }
    assert_eq!(database.count("select count(*) from oncebox.done").await, 3 * i64::from(events));
    let per_byte = written / f64::from(events * body);
    assert!(per_byte <= 2.0, "{per_byte:.2} bytes of WAL for each byte of a body");
}

/// What is due is found without passing through what is not: the clock bounds the search itself.
#[tokio::test]
async fn a_backlog_that_is_not_due_is_not_passed_through() {
    let database = TestDatabase::new().await;
    migrated(&database);
    fill(&database).await;
    database.execute("analyze oncebox.retry").await;
    let workflow = (&"w1" as &(dyn ToSql + Sync), Type::TEXT);
    let limit = (&64_i64 as &(dyn ToSql + Sync), Type::INT8);
    let held = [workflow.clone(), limit.clone()];
    let recent = [workflow.clone(), (&600.0_f64, Type::FLOAT8), limit];
    let searches: [(&str, Parameters<'_>, &str); 3] = [
        ("relay/hold_in_doubt.sql", &held, "(due <= $"),
        ("observe/workflow_gauges.sql", &[workflow], "(due <= $"),
        ("relay/recent_dead_letters.sql", &recent, "(created_at > $"),
    ];
    let mut plans = Vec::new();
    for (function, arguments) in [("claim_retries", CLAIM), ("end_in_doubt", "'w1', 64, false")] {
        plans.push((function, kept_plan(&database, function, arguments).await, "(due <= $"));
    }
    for (file, parameters, bound) in searches {
        plans.push((file, plan(&database, file, parameters).await, bound));
    }
    for (file, plan, bound) in plans {
        let is_bound = plan.iter().any(|line| line.contains("Index Cond:") && line.contains(bound));
        assert!(is_bound, "{file} passes through all that waits:\n{}", plan.join("\n"));
    }
}

/// Counted by Postgres, with nothing going wrong. How large batches are depends on the machine, and some statements come with
/// the time that passes, so that the bound is wide: one statement for each event would be twice as many. The benchmark has the figure.
#[tokio::test]
async fn statements_are_sent_for_batches_and_not_for_events() {
    let (topic, database, receiver) = (Topic::new(4).await, TestDatabase::new().await, TestReceiver::start().await);
    // It can be created where the server has not loaded it, but not be asked.
    let counts = "create extension if not exists pg_stat_statements; select calls from pg_stat_statements limit 1";
    if database.client.batch_execute(counts).await.is_err() {
        skip("this Postgres has no pg_stat_statements");
        return;
    }
    let events = 10_000;
    topic.send_orders(0..events);
    topic.flush();
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery = "concurrency: 256".to_owned();
    let relay = Relay::start(&config);
    eventually("all are delivered", PATIENCE, async || {
        let delivered = relay.metric("oncebox_delivered_total", "").await?;
        (delivered >= f64::from(events)).then_some(())
    })
    .await;
    let counted = database
        .client
        .query_one(
            "select coalesce(sum(calls), 0)::int8,
                    coalesce(sum(calls) filter (where query like '%append_alike(%'), 0)::int8
               from pg_stat_statements where query like '%' || $1 || '.%'",
            &[&database.schema],
        )
        .await
        .expect("it counts");
    let (all, appends): (i64, i64) = (counted.get(0), counted.get(1));
    assert!(appends >= i64::from(events / 1_000), "{appends} appends for {events} events");
    let per_1000 = all as f64 * 1_000.0 / f64::from(events);
    assert!(per_1000 <= 500.0, "{per_1000:.1} statements for 1,000 events");
}
