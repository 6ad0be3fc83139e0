//! The statements that write outcomes down, asked directly: a right that is not current changes nothing.

use std::time::Duration;

use oncebox::event::{CursorId, Event, Place, ProcessId, Reason, SourcePosition};
use oncebox::outbox::Database;
use oncebox::outbox::attempt::{AttemptRecord, EventRef, Right};
use oncebox::outbox::direct::{self, Mark, Reached};
use oncebox::outbox::failure::{self, Failure, Next};
use oncebox::outbox::park::{self, Death, Parked};
use oncebox::outbox::settle::{self, Completion, Settled};
use oncebox::outbox::spill::{self, Spill, SpillEnd};

use crate::support::TestDatabase;
use crate::support::process::migrated;

pub const FENCE: i64 = 7;
/// Of the server that is asked.
pub const TIMELINE: &str = "left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)";

pub struct Case {
    pub test: TestDatabase,
    pub database: Database,
    pub process: ProcessId,
    pub event: EventRef,
}

/// One stored event whose delivery `process` holds under epoch 7; with a leased retry of fence 7, if asked for.
pub async fn case(retry: bool) -> Case {
    let test = TestDatabase::new().await;
    migrated(&test);
    let process = ProcessId::new_v4();
    test.execute(&format!(
        "insert into oncebox.workflow (id) values ('w');
         insert into oncebox.cursor (id, workflow, cluster, topic, topic_id, partition, start_offset, next_offset, claimed_to,
                                     delivery_epoch)
         values (1, 'w', 'c', 't', 'i', 0, 0, 1, 1, {FENCE});
         insert into oncebox.delivery (cursor, workflow, owner, epoch, lease_until, settled_to, timeline)
         values (1, 'w', '{process}', {FENCE}, clock_timestamp() + interval '1 hour', 0, {TIMELINE});
         insert into oncebox.outbox (cursor, record_offset, event_index, generation, day, key, event_type, content_type,
                                     source_at, created_at, config_version, body)
         values (1, 0, 0, 0, current_date, 'k', 't', 'text/plain', 0, now(), 1, 'x')"
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
    let database = test.opened();
    let day = test.query("select day from oncebox.outbox", &[]).await[0].get(0);
    let place = Place { cursor: CursorId(1), offset: 0, index: 0, generation: 0 };
    Case { test, database, process, event: EventRef { place, day, body_bytes: 1, record_at: Some(0), lane: None } }
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

    pub async fn fail(&self, right: Right) -> usize {
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

    pub async fn park(&self, right: Right) -> Parked {
        let death = Death {
            event: self.event.clone(),
            workflow: "w".into(),
            right,
            sends: 2,
            reason: Reason::Exhausted,
            blocks: false,
            attempt: None,
        };
        park::park(&self.database, self.process, &death).await.expect("it runs")
    }

    pub async fn complete(&self, right: Right) -> Settled {
        let completion = Completion { event: self.event.clone(), right, sends: 2, status: Some(200) };
        let settled = settle::completed(&self.database, self.process, &[completion]).await.expect("it runs");
        settled[&(self.event.place, right)]
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

#[tokio::test]
async fn a_first_delivery_that_is_written_down_again_counts_once() {
    let right = Right::Range { epoch: FENCE };
    let delivered = case(false).await;
    assert_eq!(delivered.complete(right).await, Settled::Recorded);
    assert_eq!(delivered.complete(right).await, Settled::AlreadyDone, "asked again after a lost answer");
    assert_eq!(delivered.park(right).await, Parked::AlreadyDone);
    assert_eq!(delivered.test.count("select completed from oncebox.delivery").await, 1);
    let ends = "select count(*) from oncebox.done where state = 'completed' and sends = 1 and status = 200";
    assert_eq!(delivered.test.count(ends).await, 1);
    let dead = case(false).await;
    assert_eq!(dead.park(right).await, Parked::Written);
    assert_eq!(dead.complete(right).await, Settled::AlreadyDone);
    assert_eq!(dead.test.count("select completed from oncebox.delivery").await, 0);
    assert_eq!(dead.test.count("select count(*) from oncebox.done where state = 'discarded'").await, 1);
}

#[tokio::test]
async fn a_late_answer_leaves_the_lane_to_the_attempt_that_holds_it() {
    let case = case(true).await;
    assert_eq!(case.complete(Right::Retry { fence: FENCE - 1 }).await, Settled::Late);
    let leased = "select count(*) from oncebox.retry where state = 'active'";
    assert_eq!(case.test.count(leased).await, 1, "whatever waits behind it waits until that attempt has ended");
    settle::clear_done(&case.database, std::slice::from_ref(&case.event)).await.expect("it runs");
    assert_eq!(case.test.count(leased).await, 1);
    assert_eq!(case.complete(Right::Retry { fence: FENCE }).await, Settled::AlreadyDone);
    assert_eq!(case.test.count("select count(*) from oncebox.retry").await, 0);
}

#[tokio::test]
async fn what_is_not_done_stays_when_late_answers_are_cleared() {
    let case = case(true).await;
    case.test
        .execute("update oncebox.retry set state = 'pending', held = 'in_doubt', leased_by = null, lease_until = null")
        .await;
    settle::clear_done(&case.database, std::slice::from_ref(&case.event)).await.expect("it runs");
    assert_eq!(case.test.count("select count(*) from oncebox.retry").await, 1, "a failover may have lost its end");
}

/// The same cursor, read without the outbox by `process` under epoch 7, at offset 1.
async fn direct_case() -> Case {
    let case = case(false).await;
    let owned = format!(
        "update oncebox.cursor set direct = true, owner = '{}', owner_epoch = {FENCE},
                timeline = {TIMELINE}",
        case.process
    );
    case.test.execute(&owned).await;
    case
}

impl Case {
    fn failed_directly(&self, epoch: i64) -> Spill {
        let place = Place { offset: 5, ..self.event.place };
        let event = Event {
            place,
            day: self.event.day,
            source: SourcePosition { topic: "t".into(), partition: 0, offset: 5 },
            key: "k5".to_owned(),
            event_type: "t".to_owned(),
            content_type: "text/plain".to_owned(),
            traceparent: None,
            lane: None,
            record_at: None,
            stored_at: 0,
            body: "x".into(),
        };
        let end = SpillEnd::Waits(Next::Again { after: Duration::from_secs(60) });
        Spill { event, workflow: "w".into(), version: 1, epoch, sends: 1, counted: 1, end, attempt: self.attempt() }
    }

    async fn spill(&self, epoch: i64) -> usize {
        let spills = [self.failed_directly(epoch)];
        spill::spill(&self.database, self.process, &spills).await.expect("it runs").len()
    }

    async fn next_offset(&self) -> i64 {
        self.test.count("select next_offset from oncebox.cursor").await
    }
}

#[tokio::test]
async fn a_direct_failure_is_stored_once_and_only_by_the_partitions_owner() {
    let case = direct_case().await;
    assert_eq!(case.spill(FENCE - 1).await, 0);
    assert_eq!(case.test.count("select count(*) from oncebox.spilled").await, 0);
    assert_eq!(case.spill(FENCE).await, 1);
    assert_eq!(case.spill(FENCE).await, 1, "again after a lost reply: durable already");
    for table in ["spilled", "retry"] {
        assert_eq!(case.test.count(&format!("select count(*) from oncebox.{table}")).await, 1, "{table}");
    }
    assert_eq!(case.test.count("select appended from oncebox.cursor").await, 1);
    let ahead = direct::spilled_ahead(&case.database, &[CursorId(1)]).await.expect("it runs");
    assert_eq!(ahead[&CursorId(1)].iter().copied().collect::<Vec<_>>(), [(5, 0)]);
    case.test.execute("update oncebox.cursor set owner = gen_random_uuid()").await;
    assert_eq!(case.spill(FENCE).await, 0, "another process owns it");
}

#[tokio::test]
async fn a_mark_is_believed_only_of_its_own_era_and_on_a_database_that_kept_all() {
    let case = direct_case().await;
    let mark = |offset, era| Mark { cursor: CursorId(1), offset, era };
    direct::catch_up(&case.database, &[mark(9, 1)]).await.expect("it runs");
    assert_eq!(case.next_offset().await, 1, "a mark of another era");
    direct::catch_up(&case.database, &[mark(4, 0)]).await.expect("it runs");
    assert_eq!(case.next_offset().await, 4);
    direct::catch_up(&case.database, &[mark(2, 0)]).await.expect("it runs");
    assert_eq!(case.next_offset().await, 4, "a copy never goes back");
    let reached = |epoch| Reached { cursor: CursorId(1), epoch, offset: 8 };
    let copy =
        async |epoch| direct::copy(&case.database, case.process, &[reached(epoch)]).await.expect("it runs").len();
    assert_eq!(copy(FENCE - 1).await, 0);
    assert_eq!(copy(FENCE).await, 1);
    assert_eq!(case.next_offset().await, 8);
    case.test.execute("update oncebox.cursor set timeline = '00000000'").await;
    assert_eq!(copy(FENCE).await, 0, "the database failed over: what was stored since may be gone");
    direct::catch_up(&case.database, &[mark(20, 0)]).await.expect("it runs");
    assert_eq!(case.next_offset().await, 8);
    direct::distrust_marks(&case.database, &[CursorId(1)]).await.expect("it runs");
    direct::catch_up(&case.database, &[mark(20, 0)]).await.expect("it runs");
    assert_eq!(case.next_offset().await, 8, "nor later");
    assert_eq!(copy(FENCE).await, 1);
}
