//! The statements that write outcomes down, asked directly: a right that is not current changes nothing.

use std::time::Duration;

use oncebox::config::Postgres;
use oncebox::event::{CursorId, Place, ProcessId, Reason};
use oncebox::outbox::Database;
use oncebox::outbox::attempt::{AttemptRecord, EventRef, Right};
use oncebox::outbox::failure::{self, Failure, Next};
use oncebox::outbox::park::{self, Death, Parked};
use oncebox::outbox::settle::{self, Completion, Settled};

use crate::support::process::migrated;
use crate::support::{TestDatabase, services};

const FENCE: i64 = 7;

struct Case {
    test: TestDatabase,
    database: Database,
    process: ProcessId,
    event: EventRef,
}

/// One stored event whose delivery `process` holds under epoch 7; with a leased retry of fence 7, if asked for.
async fn case(retry: bool) -> Case {
    let test = TestDatabase::new().await;
    migrated(&test);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.yaml");
    let yaml = format!("postgres: {{url: \"{}\", schema: {}}}\n", "${DATABASE_URL}", test.schema);
    std::fs::write(&path, yaml.replace("${DATABASE_URL}", &services().database_url)).expect("written");
    let (loaded, _) = oncebox::config::read(&path);
    let settings: Postgres = loaded.expect("a configuration").config.postgres;
    let process = ProcessId::new_v4();
    test.execute(&format!(
        "insert into oncebox.workflow (id) values ('w');
         insert into oncebox.cursor (id, workflow, cluster, topic, topic_id, partition, start_offset, next_offset, claimed_to,
                                     delivery_epoch)
         values (1, 'w', 'c', 't', 'i', 0, 0, 1, 1, {FENCE});
         insert into oncebox.delivery (cursor, workflow, owner, epoch, lease_until, settled_to)
         values (1, 'w', '{process}', {FENCE}, clock_timestamp() + interval '1 hour', 0);
         insert into oncebox.outbox values (1, 0, 0, 0, current_date, 'k', 't', 'text/plain', null, 0, now(), 1, 'x')"
    ))
    .await;
    if retry {
        test.execute(&format!(
            "insert into oncebox.retry (cursor, record_offset, event_index, generation, day, workflow, state, sends, counted,
                                        fence, due, leased_by, lease_until, in_doubt, event_at)
             values (1, 0, 0, 0, current_date, 'w', 'active', 2, 2, {FENCE}, now() + interval '1 hour', '{process}',
                     now() + interval '1 hour', false, now())"
        ))
        .await;
    }
    let database = Database::new(&settings).expect("settings");
    let day = test.query("select day from oncebox.outbox", &[]).await[0].get(0);
    let place = Place { cursor: CursorId(1), offset: 0, index: 0, generation: 0 };
    Case { test, database, process, event: EventRef { place, day, body_bytes: 1, record_at: Some(0) } }
}

impl Case {
    fn attempt(&self) -> AttemptRecord {
        AttemptRecord {
            outcome: "http_5xx",
            status: Some(500),
            error: None,
            answer: None,
            took: Duration::ZERO,
            ago: Duration::ZERO,
        }
    }

    async fn fail(&self, right: Right) -> usize {
        let failure = Failure {
            event: self.event.clone(),
            workflow: "w".into(),
            right,
            sends: 2,
            counted: 2,
            next: Next::Again { after: Duration::from_secs(60) },
            attempt: Some(self.attempt()),
        };
        failure::failed(&self.database, self.process, &[failure]).await.expect("it runs").len()
    }

    async fn park(&self, right: Right) -> Parked {
        let death = Death {
            event: self.event.clone(),
            workflow: "w".into(),
            right,
            sends: 2,
            reason: Reason::Exhausted,
            attempt: None,
        };
        park::park(&self.database, self.process, &death).await.expect("it runs")
    }

    async fn complete(&self, right: Right) -> Settled {
        let completion = Completion { event: self.event.clone(), right, sends: 2, status: Some(200) };
        let settled = settle::completed(&self.database, self.process, &[completion]).await.expect("it runs");
        settled[&self.event.place]
    }
}

#[tokio::test]
async fn a_failure_under_a_lost_right_changes_nothing() {
    let first = case(false).await;
    assert_eq!(first.fail(Right::Range { epoch: FENCE - 1 }).await, 0);
    assert_eq!(first.test.count("select count(*) from oncebox.retry").await, 0);
    assert_eq!(first.fail(Right::Range { epoch: FENCE }).await, 1);
    let retried = case(true).await;
    assert_eq!(retried.fail(Right::Retry { fence: FENCE - 1 }).await, 0);
    assert_eq!(
        retried.test.count("select count(*) from oncebox.retry where state = 'active'").await,
        1,
        "still leased"
    );
    assert_eq!(retried.fail(Right::Retry { fence: FENCE }).await, 1);
    assert_eq!(retried.test.count("select count(*) from oncebox.retry where state = 'retryable'").await, 1);
}

#[tokio::test]
async fn nobody_parks_an_event_under_a_lost_right() {
    let first = case(false).await;
    assert_eq!(first.park(Right::Range { epoch: FENCE - 1 }).await, Parked::Fenced);
    assert_eq!(first.park(Right::Range { epoch: FENCE }).await, Parked::Written);
    assert_eq!(first.park(Right::Range { epoch: FENCE }).await, Parked::AlreadyDone, "asked again after a lost answer");
    let retried = case(true).await;
    assert_eq!(retried.park(Right::Retry { fence: FENCE - 1 }).await, Parked::Fenced);
    assert_eq!(retried.test.count("select count(*) from oncebox.dead_letter").await, 0);
    assert_eq!(retried.park(Right::Retry { fence: FENCE }).await, Parked::Written);
    assert_eq!(retried.test.count("select count(*) from oncebox.retry").await, 0);
}

#[tokio::test]
async fn an_event_that_a_failover_lost_is_not_ended_without_its_dead_letter() {
    let case = case(false).await;
    // The server that took over has the delivery and not the event, which is read again later.
    case.test.execute("delete from oncebox.outbox").await;
    assert_ne!(case.park(Right::Range { epoch: FENCE }).await, Parked::Written);
    assert_eq!(case.test.count("select count(*) from oncebox.done").await, 0, "an end without a dead letter is a loss");
    case.test
        .execute(
            "insert into oncebox.outbox values (1, 0, 0, 0, current_date, 'k', 't', 'text/plain', null, 0, now(), 1, 'x')",
        )
        .await;
    assert_eq!(case.park(Right::Range { epoch: FENCE }).await, Parked::Written);
    assert_eq!(case.test.count("select count(*) from oncebox.dead_letter").await, 1);
}

#[tokio::test]
async fn a_late_delivery_counts_once_and_an_end_never_changes() {
    let case = case(true).await;
    assert_eq!(case.complete(Right::Retry { fence: FENCE - 1 }).await, Settled::Late);
    let ended: String = case.test.query("select at::text from oncebox.done", &[]).await[0].get(0);
    assert_eq!(case.complete(Right::Retry { fence: FENCE }).await, Settled::AlreadyDone);
    assert_eq!(case.park(Right::Range { epoch: FENCE }).await, Parked::AlreadyDone);
    let still: String =
        case.test.query("select at::text from oncebox.done where state = 'completed'", &[]).await[0].get(0);
    assert_eq!(ended, still);
    assert_eq!(case.test.count("select completed from oncebox.delivery").await, 1);
    assert_eq!(case.test.count("select count(*) from oncebox.dead_letter").await, 0);
}
