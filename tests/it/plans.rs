//! How statements find their rows: on tables that are empty, full and never looked at, and full and known, none reads one whole.
//!
//! A plan that a connection makes once and keeps, for a function, may only search: the tables grow under it. One that is made anew each
//! time may read a table of a few pages: that is what Postgres takes an empty one for until it has been looked at.

use std::path::Path;

use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::support::TestDatabase;
use crate::support::process::migrated;

const EVENTS: i64 = 20_000;
/// So many that reading them all is dearer than a search for each of a few.
const RETRIES: i64 = 60_000;

/// All that grow with events, and those with a row for each partition, of which a large fleet has thousands.
const WATCHED: [&str; 9] =
    ["outbox", "ended", "remark", "retry", "dead_letter", "cancel", "replay", "cursor", "delivery"];
/// What it costs at most to read ten pages, as planned.
const A_FEW_PAGES: f64 = 30.0;

/// A cursor with events, half of them done, and long backlogs of retries of ten workflows; that of the first keeps order too.
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
             insert into oncebox.ended (cursor, block, event_index, generation, day, bits, again, tried, tried_at)
             select 2 + n % 100, n, 0, 0, timezone('utc', now())::date, -1, 0, 0, 0 from generate_series(1, 20000) as n;
             insert into oncebox.retry (cursor, record_offset, event_index, generation, day, workflow, state, sends, counted,
                                        fence, due, in_doubt, event_at)
             select n % 10, n, 0, 0, timezone('utc', now())::date, 'w' || n % 10, 'retryable', 1, 1, 1, now(), n % 2 = 0, now()
               from generate_series({EVENTS}, {EVENTS} + {RETRIES}) as n;
             insert into oncebox.retry (cursor, record_offset, event_index, generation, day, workflow, state, held, sends,
                                        counted, fence, due, in_doubt, event_at, lane)
             select 1, n, 0, 0, timezone('utc', now())::date, 'w1', 'pending', 'order', 0, 0, 0, now(), false, now(), n % 50
               from generate_series({EVENTS} + {RETRIES} + 1, {EVENTS} + {RETRIES} + 600) as n"
        ))
        .await;
}

/// What else there is after a while, mostly of others: 500 workflows with a dozen partitions each, dead letters, cancels, replays. The
/// tables with a row for each partition are looked at whenever a thousand of their rows have changed.
async fn fill_others(database: &TestDatabase) {
    database
        .execute(
            "insert into oncebox.cursor (id, workflow, cluster, topic, topic_id, partition, start_offset, next_offset, claimed_to)
             select n, 'w' || n / 12, 'c', 't', 'i', n, 0, 0, 0 from generate_series(12, 6011) as n;
             insert into oncebox.delivery (cursor, workflow, settled_to)
             select n, 'w' || n / 12, 0 from generate_series(12, 6011) as n;
             analyze oncebox.cursor; analyze oncebox.delivery;
             insert into oncebox.dead_letter (cursor, record_offset, event_index, generation, day, workflow, topic, partition,
                                              reason, config_version, sends, fence, attempts, lane)
             select 2 + n % 1000, n, 0, 0, timezone('utc', now())::date, 'w' || n % 1000, 't', 0, 'exhausted', 1, 8, 1, '[]'::json, n
               from generate_series(1, 20000) as n;
             insert into oncebox.cancel (cursor, record_offset, event_index, generation, workflow, who)
             select 2 + n % 1000, n, 0, 0, 'w' || n % 1000, 'somebody' from generate_series(1, 20000) as n;
             insert into oncebox.replay (id, to_at, new_key, force, state, who, total)
             select gen_random_uuid(), now(), false, false, 'completed', 'somebody', 1 from generate_series(1, 20000) as n",
        )
        .await;
}

type Parameters<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

async fn plan(database: &TestDatabase, file: &str, parameters: Parameters<'_>) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql").join(file);
    let text = std::fs::read_to_string(path).expect("a statement");
    plan_of(database, file, &text.replace("oncebox.", &format!("{}.", database.schema)), parameters).await
}

async fn plan_of(database: &TestDatabase, name: &str, text: &str, parameters: Parameters<'_>) -> Vec<String> {
    let rows = database.client.query_typed(&format!("explain {text}"), parameters).await;
    let rows = rows.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    rows.iter().map(|row| row.get(0)).collect()
}

/// What a function is made of, its parameters, and the settings that it runs with.
async fn function(database: &TestDatabase, name: &str) -> (String, String, Vec<String>) {
    let found = database
        .query(
            "select p.prosrc, pg_get_function_identity_arguments(p.oid), coalesce(p.proconfig, '{}')
               from pg_proc as p where p.pronamespace = $1::text::regnamespace and p.proname = $2",
            &[&database.schema, &name],
        )
        .await;
    (found[0].get(0), found[0].get(1), found[0].get(2))
}

/// The plan that a connection would make and keep now, for a function's first statement that begins so.
async fn kept_plan(database: &TestDatabase, name: &str, begin: &str, arguments: &str) -> Vec<String> {
    let (source, types, settings) = function(database, name).await;
    let at = source.find(begin).unwrap_or_else(|| panic!("{name} has no {begin}"));
    let (body, _) = source[at..].split_once(';').expect("it ends");
    let body = body.trim_start_matches("return query");
    let settings: Vec<String> = settings.iter().map(|one| format!("set local {one};")).collect();
    let prepared = format!("begin; {} prepare kept ({types}) as {body}", settings.join(" "));
    database.client.batch_execute(&prepared).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    let plan = database.client.simple_query(&format!("explain execute kept({arguments})")).await.expect("a plan");
    database.client.batch_execute("rollback; deallocate kept").await.expect("it is forgotten");
    let line = |message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    };
    plan.into_iter().filter_map(line).collect()
}

/// The plan of what a function asks about a workflow before anything else: whether there is any work.
async fn first_question(database: &TestDatabase, name: &str) -> Vec<String> {
    let (source, _, _) = function(database, name).await;
    let (_, rest) = source.split_once("if not exists (").expect("a question");
    let (question, _) = rest.split_once(") then").expect("its end");
    let text = format!("select exists ({})", question.replace("of_workflow", "$1"));
    plan_of(database, name, &text, &[(&"w1" as &(dyn ToSql + Sync), Type::TEXT)]).await
}

const CLAIM: &str = "'w1', gen_random_uuid(), 4, 64, true, null";

/// The kept plans of functions.
async fn kept(database: &TestDatabase) -> Vec<(&'static str, Vec<String>)> {
    let retried = "'{1}', '{1}', '{0}', '{0}', '{2026-01-01}', '{1}', '{200}', '{1}', '{1}', '{1}'";
    let held = "'{1}', '{1}', '{0}', '{0}', '{2026-01-01}', '{1}', 200, gen_random_uuid(), '{1}', '{1}', '{1}', '{7}'";
    let mut plans = Vec::new();
    for (name, begin, arguments) in [
        ("claim_retries", "return query", CLAIM),
        ("open_lanes", "return query", "'{1}', '{1}', '{7}', gen_random_uuid()"),
        ("settle_retried", "return query", retried),
        ("settle_held", "update ", held),
        ("end_in_doubt", "return query", "'w1', 64, false"),
    ] {
        plans.push((name, kept_plan(database, name, begin, arguments).await));
    }
    plans
}

/// The plans of statements that are planned whenever they are sent.
async fn anew(database: &TestDatabase) -> Vec<(&'static str, Vec<String>)> {
    let (no_cursors, process): (Option<Vec<i64>>, Uuid) = (None, Uuid::new_v4());
    let (bigints, integers, no_texts) = (vec![1_i64], vec![0_i32], Vec::<String>::new());
    let workflows = vec!["w1".to_owned()];
    let int8 = |number: &'static i64| (number as &(dyn ToSql + Sync), Type::INT8);
    let int4 = |number: &'static i32| (number as &(dyn ToSql + Sync), Type::INT4);
    let float8 = |number: &'static f64| (number as &(dyn ToSql + Sync), Type::FLOAT8);
    let boolean = |answer: &'static bool| (answer as &(dyn ToSql + Sync), Type::BOOL);
    let int8s = (&bigints as &(dyn ToSql + Sync), Type::INT8_ARRAY);
    let int4s = (&integers as &(dyn ToSql + Sync), Type::INT4_ARRAY);
    let texts = (&no_texts as &(dyn ToSql + Sync), Type::TEXT_ARRAY);
    let any_cursor = (&no_cursors as &(dyn ToSql + Sync), Type::INT8_ARRAY);
    let workflow = (&"w1" as &(dyn ToSql + Sync), Type::TEXT);
    let uuid = (&process as &(dyn ToSql + Sync), Type::UUID);
    let known = (&workflows as &(dyn ToSql + Sync), Type::TEXT_ARRAY);
    let places = [int8s.clone(), int8s.clone(), int4s.clone(), int4s.clone()];
    let statements = [
        ("relay/next_due.sql", vec![workflow.clone(), any_cursor]),
        ("relay/claim_waiting.sql", vec![int8(&1), int8(&7), int8(&15_000), int8(&1_000), int8(&1_000_000)]),
        ("relay/rescue.sql", vec![int8(&1), workflow.clone(), int8(&15_000), int8(&15_100), int8(&8)]),
        (
            "relay/deliverable.sql",
            vec![
                workflow.clone(),
                uuid.clone(),
                float8(&30.0),
                int8s.clone(),
                boolean(&true),
                float8(&10.0),
                boolean(&true),
            ],
        ),
        ("relay/waiting_lanes.sql", vec![int8s.clone(), int8(&1_000), int8(&0), int8(&0)]),
        ("relay/replayed_lanes.sql", vec![int8s.clone()]),
        ("relay/let_go.sql", vec![int8(&1), int8(&7), int8(&0), int8(&0), int4(&0), int4(&0)]),
        ("relay/spread_record.sql", vec![int8(&1), int8(&7), int8(&15_000), boolean(&true)]),
        ("relay/extend_retries.sql", [&places[..], &[int8s.clone(), float8(&30.0)]].concat()),
        ("relay/take_delivery.sql", vec![int8(&1), uuid.clone(), float8(&30.0)]),
        ("relay/settle_completed.sql", [&places[..], &[int4s.clone(), int4s, uuid.clone(), int8s]].concat()),
        ("relay/hold_in_doubt.sql", vec![workflow, int8(&64)]),
        ("dead_letter/job_claim.sql", vec![uuid, float8(&30.0), texts, known]),
    ];
    let mut plans = Vec::new();
    for (file, parameters) in statements {
        plans.push((file, plan(database, file, &parameters).await));
    }
    // The statement of a sweep only calls these two, before retries are leased: nearly always there is nothing to do.
    for name in ["release_unique", "end_cancelled"] {
        plans.push((name, first_question(database, name).await));
    }
    plans
}

/// Every statement that looks for work, or for what it writes down, while tables are as they are now.
async fn assert_searched(database: &TestDatabase, tables: &str) {
    let kept = kept(database).await.into_iter().map(|(name, plan)| (name, plan, 1.0));
    let anew = anew(database).await.into_iter().map(|(name, plan)| (name, plan, A_FEW_PAGES));
    for (name, plan, most) in kept.chain(anew) {
        // A table without a page costs nothing to read.
        let cost = |line: &str| line.split("..").nth(1)?.split(' ').next()?.parse::<f64>().ok();
        let is_bad = |line: &&String| {
            WATCHED.iter().any(|table| line.contains(&format!("Seq Scan on {table}")))
                && cost(line).is_none_or(|cost| cost >= most)
        };
        let bad: Vec<&String> = plan.iter().filter(is_bad).collect();
        assert!(bad.is_empty(), "{name} reads whole tables that are {tables}: {bad:?}\n{}", plan.join("\n"));
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
    assert_searched(&database, "empty").await;
    fill(&database).await;
    fill_others(&database).await;
    assert_searched(&database, "full and never looked at").await;
    for table in WATCHED {
        database.execute(&format!("analyze oncebox.{table}")).await;
    }
    assert_searched(&database, "full and known").await;
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
    for (name, arguments) in [("claim_retries", CLAIM), ("end_in_doubt", "'w1', 64, false")] {
        plans.push((name, kept_plan(&database, name, "return query", arguments).await, "(due <= $"));
    }
    for (file, parameters, bound) in searches {
        plans.push((file, plan(&database, file, parameters).await, bound));
    }
    for (file, plan, bound) in plans {
        let is_bound = plan.iter().any(|line| line.contains("Index Cond:") && line.contains(bound));
        assert!(is_bound, "{file} passes through all that waits:\n{}", plan.join("\n"));
    }
}
