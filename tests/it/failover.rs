//! After a failover that lost commits: what a process still knows of lost events changes nothing of what is stored anew, perhaps
//! on the next day.

use std::time::Duration;

use oncebox::event::Lane;
use oncebox::outbox::attempt::{EventRef, Right};
use oncebox::outbox::lane::{self, Behind};
use oncebox::outbox::park::Parked;
use oncebox::outbox::settle::{self, Settled};
use oncebox::receiver::Answer;

use crate::fences::{Case, FENCE, TIMELINE, case};
use crate::support::cluster::Cluster;
use crate::support::process::Config;
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually, skip};

impl Case {
    /// The delivery was taken from a server that is not this one.
    async fn failed_over(&self) {
        self.test.execute("update oncebox.delivery set timeline = '00000000'").await;
    }

    async fn taken_here(&self) {
        self.test.execute(&format!("update oncebox.delivery set timeline = {TIMELINE}")).await;
    }

    /// The event is stored, but not under the day that its sender knows.
    async fn stored_anew_after_midnight(&self) {
        self.test.execute("update oncebox.outbox set day = day + 1; update oncebox.retry set day = day + 1").await;
    }

    /// Ends, and those of them that are of no stored event.
    async fn ends(&self) -> (i64, i64) {
        let astray = "select count(*) from oncebox.done as d
                       where not exists (select 1 from oncebox.outbox as o where o.cursor = d.cursor
                             and o.record_offset = d.record_offset and o.event_index = d.event_index
                             and o.generation = d.generation and o.day = d.day)";
        (self.test.count("select count(*) from oncebox.done").await, self.test.count(astray).await)
    }
}

#[tokio::test]
async fn what_is_stored_anew_after_midnight_ends_under_its_own_day() {
    let case = case(false).await;
    case.failed_over().await;
    case.stored_anew_after_midnight().await;
    assert_eq!(case.complete(Right::Range { epoch: FENCE }).await, Settled::Late);
    assert_eq!(case.ends().await, (1, 0), "an end under another day ends nothing: the event would be sent for ever");
    assert_eq!(case.complete(Right::Range { epoch: FENCE }).await, Settled::AlreadyDone);
    assert_eq!(case.test.count("select completed from oncebox.delivery").await, 1);
}

#[tokio::test]
async fn an_answer_to_what_the_last_owner_sent_ends_the_event_under_its_own_day() {
    let case = case(false).await;
    case.stored_anew_after_midnight().await;
    // The delivery was taken anew since, here: the answer is to a request of before.
    assert_eq!(case.complete(Right::Range { epoch: FENCE - 1 }).await, Settled::Late);
    assert_eq!(case.ends().await, (1, 0));
}

#[tokio::test]
async fn an_answer_to_a_retry_ends_the_event_under_its_own_day() {
    let retried = case(true).await;
    retried.stored_anew_after_midnight().await;
    assert_eq!(retried.complete(Right::Retry { fence: FENCE }).await, Settled::Recorded);
    assert_eq!(retried.ends().await, (1, 0));
    let waiting = case(true).await;
    waiting.stored_anew_after_midnight().await;
    waiting.test.execute("delete from oncebox.retry").await;
    assert_eq!(waiting.complete(Right::Retry { fence: FENCE }).await, Settled::Late);
    assert_eq!(waiting.ends().await, (1, 0));
}

#[tokio::test]
async fn what_is_lost_does_not_end_before_it_is_read_again() {
    for right in [Right::Range { epoch: FENCE }, Right::Retry { fence: FENCE }] {
        let case = case(right.is_retry()).await;
        case.failed_over().await;
        case.test.execute("delete from oncebox.outbox; delete from oncebox.retry").await;
        case.complete(right).await;
        assert_eq!(case.ends().await, (0, 0), "{right:?}");
        assert_eq!(case.test.count("select completed from oncebox.delivery").await, 0, "nothing ended");
    }
}

#[tokio::test]
async fn a_failure_of_what_a_failover_lost_is_not_in_the_way_of_what_is_stored_anew() {
    let case = case(false).await;
    case.failed_over().await;
    case.stored_anew_after_midnight().await;
    assert_eq!(case.fail(Right::Range { epoch: FENCE }).await, 0);
    assert_eq!(case.test.count("select count(*) from oncebox.retry").await, 0, "a retry without an event never ends");
}

#[tokio::test]
async fn a_death_of_what_a_failover_lost_takes_nothing_from_what_is_stored_anew() {
    let case = case(true).await;
    case.failed_over().await;
    case.stored_anew_after_midnight().await;
    assert_eq!(case.park(Right::Range { epoch: FENCE }).await, Parked::Fenced);
    assert_eq!(case.test.count("select count(*) from oncebox.retry").await, 1, "it is still to be sent");
}

#[tokio::test]
async fn an_end_is_found_under_the_day_of_the_event_that_is_held() {
    let case = case(true).await;
    let held = "update oncebox.retry set state = 'pending', held = 'in_doubt', leased_by = null, lease_until = null";
    case.test.execute(held).await;
    case.stored_anew_after_midnight().await;
    case.test
        .execute(
            "select oncebox.finish('{1}', '{0}', '{0}', '{0}', array[day], 'completed', '{1}', '{200}') from oncebox.outbox",
        )
        .await;
    settle::clear_done(&case.database, std::slice::from_ref(&case.event)).await.expect("it runs");
    assert_eq!(case.test.count("select count(*) from oncebox.retry").await, 0);
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
            "insert into oncebox.outbox (cursor, record_offset, event_index, generation, day, key, event_type, content_type,
                                     source_at, created_at, config_version, body)
         values (1, 0, 0, 0, current_date, 'k', 't', 'text/plain', 0, now(), 1, 'x')",
        )
        .await;
    assert_eq!(case.park(Right::Range { epoch: FENCE }).await, Parked::Written);
    assert_eq!(case.test.count("select count(*) from oncebox.dead_letter").await, 1);
}

#[tokio::test]
async fn nothing_is_stored_behind_what_a_failover_may_have_lost() {
    let case = case(false).await;
    let event = EventRef { lane: Some(Lane(5)), ..case.event.clone() };
    let put = async |epoch| {
        let behind = Behind { event: event.clone(), epoch };
        lane::put_behind(&case.database, case.process, &[behind]).await.expect("it runs").len()
    };
    case.failed_over().await;
    assert_eq!(put(FENCE).await, 0, "the delivery was taken from another server");
    case.taken_here().await;
    assert_eq!(put(FENCE - 1).await, 0, "under a lost right");
    assert_eq!(put(FENCE).await, 1);
}

/// Leases are long, as they are by default: what tells is the first outcome that is not written, not the next heartbeat.
#[tokio::test]
async fn a_failover_that_loses_nothing_puts_only_what_was_under_way_in_doubt() {
    let Some(mut cluster) = Cluster::new() else {
        skip("no PostgreSQL server binaries on this machine");
        return;
    };
    cluster.serve(&[]).await;
    let (concurrency, sent) = (4, 600);
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let refuses = || Answer::After(Duration::from_millis(20), Box::new(Answer::status(422)));
    let receiver = TestReceiver::deciding(move |_| refuses()).await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.guarantee = "at-most-once";
    config.delivery.push_str(&format!("\n      concurrency: {concurrency}"));
    (config.timeout, config.lease) = ("15s", "45s");
    let _relay = Relay::start_in(&config, "", &[("DATABASE_URL", cluster.url().as_str())]);
    topic.send_orders(0..sent);
    eventually("work is under way", PATIENCE, async || (receiver.seen().len() > 100).then_some(())).await;
    cluster.fail_over().await;
    let client = cluster.client().await;
    let schema = &database.schema;
    let letters = format!("select count(*), count(*) filter (where reason = 'in_doubt') from {schema}.dead_letter");
    let in_doubt = eventually("every event has ended", PATIENCE, async || {
        let row = client.query_one(&letters, &[]).await.expect("a count");
        (row.get::<_, i64>(0) == i64::from(sent)).then(|| row.get::<_, i64>(1))
    })
    .await;
    assert!(in_doubt <= 4 * concurrency, "{in_doubt} in doubt, of {concurrency} at a time");
    assert_eq!(receiver.seen().len(), sent as usize, "each was sent once");
}
