//! What is deleted, and what never is: days that are past their retention go, as whole partitions, unless an event of
//! theirs is still to be delivered.

use std::sync::Arc;

use oncebox::config::Workflow;
use oncebox::observe::Metrics;
use oncebox::outbox::unique::{self, Mark};
use oncebox::outbox::{Database, partitions};

use crate::support::process::migrated;
use crate::support::{TestDatabase, services};

const PARENTS: [&str; 5] = ["outbox", "ended", "remark", "attempt", "ledger"];

struct Case {
    test: TestDatabase,
    database: Database,
    workflows: Vec<Arc<Workflow>>,
}

/// A workflow that keeps bodies for 3 days and records for 30; its one cursor is read to 100 and settled to this offset.
async fn case(settled_to: i64, more: &str) -> Case {
    let test = TestDatabase::new().await;
    migrated(&test);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.yaml");
    let yaml = format!(
        "postgres: {{url: \"{}\", schema: {}}}
workflows:
  - id: w
    source: {{topics: [t]}}
    endpoint: {{url: \"https://erp.example.com/events\"}}
    retention: 30d
    payloadRetention: 3d
    {more}
",
        services().database_url,
        test.schema
    );
    std::fs::write(&path, yaml).expect("written");
    let (loaded, _) = oncebox::config::read(&path);
    let config = loaded.expect("a configuration").config;
    test.execute(&format!(
        "insert into oncebox.workflow (id) values ('w');
         insert into oncebox.cursor (id, workflow, cluster, topic, topic_id, partition, start_offset, next_offset, claimed_to)
         values (1, 'w', 'c', 't', 'i', 0, 0, 100, 100);
         insert into oncebox.delivery (cursor, workflow, settled_to) values (1, 'w', {settled_to})"
    ))
    .await;
    let database = Database::new(&config.postgres).expect("settings");
    Case { test, database, workflows: config.workflows }
}

/// The day so many days ago, as SQL.
fn day(ago: u32) -> String {
    format!("(timezone('utc', clock_timestamp())::date - {ago})")
}

impl Case {
    /// The partitions of a day in the past, as they were made when it was ahead, with one event at this offset.
    async fn past_day(&self, ago: u32, offset: i64) {
        for parent in PARENTS {
            self.test
                .execute(&format!(
                    "do $$ declare day date := {day}; begin
                         execute format('create table oncebox.%I partition of oncebox.{parent} for values from (%L) to (%L)',
                                        '{parent}_' || to_char(day, 'YYYY_MM_DD'), day, day + 1);
                     end $$",
                    day = day(ago)
                ))
                .await;
        }
        self.test
            .execute(&format!(
                "insert into oncebox.outbox (cursor, record_offset, event_index, generation, day, key, event_type,
                                             content_type, created_at, config_version, body)
                 values (1, {offset}, 0, 0, {}, 'k', 't', 'text/plain', now(), 1, 'x')",
                day(ago)
            ))
            .await;
    }

    async fn done(&self, ago: u32, offset: i64) {
        self.test
            .execute(&format!(
                "select oncebox.finish('{{1}}', '{{{offset}}}', '{{0}}', '{{0}}', array[{}], 'completed', '{{1}}', '{{200}}')",
                day(ago)
            ))
            .await;
    }

    async fn dead_letters(&self, workflow: &str, ago: u32, offsets: std::ops::Range<i64>) {
        self.test
            .execute(&format!(
                "insert into oncebox.dead_letter (cursor, record_offset, event_index, generation, day, workflow, topic,
                                                  partition, reason, config_version, sends, fence, attempts, created_at)
                 select 1, n, 0, 0, {}, '{workflow}', 't', 0, 'rejected', 1, 1, 0, '[]', now() - interval '{ago} days'
                   from generate_series({}, {}) as n",
                day(ago),
                offsets.start,
                offsets.end - 1
            ))
            .await;
    }

    async fn maintain(&self) -> Metrics {
        let metrics = Metrics::new();
        partitions::maintain(&self.database, &self.workflows, &metrics).await.expect("it runs");
        metrics
    }

    /// Which of a day's partitions are there.
    async fn left(&self, ago: u32) -> Vec<&'static str> {
        let mut left = Vec::new();
        for parent in PARENTS {
            let name = format!("'{}.{parent}_' || to_char({}, 'YYYY_MM_DD')", self.test.schema, day(ago));
            if self.test.count(&format!("select count(to_regclass({name}))")).await == 1 {
                left.push(parent);
            }
        }
        left
    }
}

#[tokio::test]
async fn a_settled_day_loses_its_bodies_after_payload_retention_and_its_records_after_retention() {
    let case = case(100, "").await;
    for (ago, offset) in [(3, 30), (4, 20), (30, 10), (31, 0)] {
        case.past_day(ago, offset).await;
        case.done(ago, offset).await;
    }
    // What says that an event is done goes in a later turn than the event.
    case.maintain().await;
    assert_eq!(case.left(31).await, ["ended", "remark", "attempt", "ledger"]);
    case.maintain().await;
    assert_eq!(case.left(31).await, [""; 0]);
    assert_eq!(case.left(30).await, ["ended", "remark", "attempt", "ledger"]);
    assert_eq!(case.left(4).await, ["ended", "remark", "attempt", "ledger"]);
    assert_eq!(case.left(3).await, PARENTS);
    assert_eq!(case.test.count("select count(*) from oncebox.done").await, 3);
    assert_eq!(case.test.count("select count(*) from oncebox.outbox").await, 1);
}

#[tokio::test]
async fn the_workflow_that_keeps_longest_decides_for_all() {
    let mut case = case(100, "").await;
    case.past_day(10, 0).await;
    let longer =
        Workflow { payload_retention: std::time::Duration::from_secs(20 * 86_400), ..(*case.workflows[0]).clone() };
    case.workflows.push(Arc::new(longer));
    case.maintain().await;
    assert_eq!(case.left(10).await, PARENTS);
    case.workflows.pop();
    case.maintain().await;
    assert_eq!(case.left(10).await, ["ended", "remark", "attempt", "ledger"]);
}

#[tokio::test]
async fn a_day_with_an_event_that_is_not_settled_stays_however_old() {
    let case = case(10, "").await;
    case.past_day(40, 9).await;
    case.past_day(39, 10).await;
    for _ in 0..2 {
        case.maintain().await;
    }
    assert_eq!(case.left(40).await, [""; 0], "settled");
    assert_eq!(case.left(39).await, PARENTS, "waits for its first attempt");
    // Settled above what is known to be settled: the place of the oldest open event moves later.
    case.done(39, 10).await;
    case.maintain().await;
    assert_eq!(case.left(39).await, ["ended", "remark", "attempt", "ledger"]);
}

#[tokio::test]
async fn a_day_into_which_a_retry_points_stays_however_old() {
    let case = case(100, "").await;
    case.past_day(40, 9).await;
    case.test
        .execute(&format!(
            "insert into oncebox.retry (cursor, record_offset, event_index, generation, day, workflow, state, sends,
                                        counted, fence, due, in_doubt, event_at)
             values (1, 9, 0, 0, {}, 'w', 'retryable', 1, 1, 1, now() + interval '1 hour', false, now())",
            day(40)
        ))
        .await;
    case.maintain().await;
    assert_eq!(case.left(40).await, PARENTS);
    case.test.execute("delete from oncebox.retry").await;
    for _ in 0..2 {
        case.maintain().await;
    }
    assert_eq!(case.left(40).await, [""; 0]);
}

#[tokio::test]
async fn a_drop_that_was_cut_short_is_finished() {
    let case = case(100, "").await;
    case.past_day(10, 0).await;
    let detach = "do $$ begin execute format('alter table oncebox.outbox detach partition oncebox.%I', 'outbox_' || to_char(DAY, 'YYYY_MM_DD')); end $$";
    case.test.execute(&detach.replace("DAY", &day(10))).await;
    assert_eq!(case.left(10).await, PARENTS);
    case.maintain().await;
    assert_eq!(case.left(10).await, ["ended", "remark", "attempt", "ledger"]);
}

#[tokio::test]
async fn partitions_are_made_a_week_ahead() {
    let case = case(100, "").await;
    for parent in PARENTS {
        case.test
            .execute(&format!(
                "do $$ begin execute format('drop table oncebox.%I', '{parent}_' || to_char({} + 7, 'YYYY_MM_DD')); end $$",
                day(0)
            ))
            .await;
    }
    let metrics = case.maintain().await;
    assert_eq!(metrics.partitions_ahead_days.with_label_values::<&str>(&[]).get(), 7.0);
    assert_eq!(case.left(0).await, PARENTS);
}

#[tokio::test]
async fn dead_letters_past_their_retention_go_and_others_stay() {
    let case = case(100, "deadLetterRetention: 7d").await;
    case.dead_letters("w", 8, 0..3).await;
    case.dead_letters("w", 6, 3..5).await;
    case.dead_letters("another", 8, 5..6).await;
    case.maintain().await;
    let left = "select string_agg(record_offset::text, ' ' order by record_offset) from oncebox.dead_letter";
    assert_eq!(case.test.query(left, &[]).await[0].get::<_, &str>(0), "3 4 5");
}

#[tokio::test]
async fn dead_letters_go_a_bounded_number_at_a_time() {
    let case = case(100, "deadLetterRetention: 7d").await;
    case.dead_letters("w", 8, 0..1_500).await;
    for left in [500, 0] {
        case.maintain().await;
        assert_eq!(case.test.count("select count(*) from oncebox.dead_letter").await, left);
    }
}

#[tokio::test]
async fn dead_letters_are_kept_for_ever_unless_told() {
    for more in ["", "deadLetterRetention: never"] {
        let case = case(100, more).await;
        case.dead_letters("w", 4_000, 0..2).await;
        case.maintain().await;
        assert_eq!(case.test.count("select count(*) from oncebox.dead_letter").await, 2, "{more}");
    }
}

/// Keys are kept as long as the dead letter whose replay needs them. No look passes through all of those, and none is stuck behind them.
#[tokio::test]
async fn uniqueness_keys_that_dead_letters_need_keep_no_others_from_being_forgotten() {
    let case = case(100, "").await;
    case.test
        .execute(
            "insert into oncebox.unique_event (workflow, fingerprint, cursor, record_offset, event_index, generation, created_at, expires_at)
             select 'w', decode(lpad(to_hex(n), 64, '0'), 'hex'), 1, n, 0, 0, now() - interval '2 days', now() - interval '1 day'
               from generate_series(0, 2999) as n;
             insert into oncebox.unique_key (workflow, fingerprint) select e.workflow, e.fingerprint from oncebox.unique_event as e",
        )
        .await;
    case.dead_letters("w", 2, 0..2_990).await;
    let (mut mark, mut forgotten) = (Mark::START, 0);
    for looked_at in [1_000, 1_000, 1_000, 0] {
        let pruned = unique::prune(&case.database, mark, 1_000).await.expect("it runs");
        assert_eq!(pruned.looked_at, looked_at);
        (mark, forgotten) = (pruned.mark, forgotten + pruned.forgotten);
    }
    assert_eq!(forgotten, 10);
    for table in ["unique_event", "unique_key"] {
        assert_eq!(case.test.count(&format!("select count(*) from oncebox.{table}")).await, 2_990, "{table}");
    }
    // Those of letters that are gone meanwhile are found by the next look from the beginning.
    case.test.execute("delete from oncebox.dead_letter where record_offset < 5").await;
    let pruned = unique::prune(&case.database, Mark::START, 1_000).await.expect("it runs");
    assert_eq!((pruned.looked_at, pruned.forgotten), (1_000, 5));
}
