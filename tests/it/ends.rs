//! Ends that are written down together: each is judged by itself, and none costs the others anything.

use oncebox::event::{CursorId, Place, ProcessId};
use oncebox::outbox::Database;
use oncebox::outbox::attempt::{EventRef, Right};
use oncebox::outbox::settle::{self, Completion, Settled};
use oncebox::outbox::sql::Schema;
use oncebox::receiver::Answer;
use tokio_postgres::{Client, NoTls};

use crate::fences::{FENCE, TIMELINE, case};
use crate::support::process::{Config, migrated};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually, services};

/// Cursors from 1 on, each with stored events of one byte, whose deliveries one process holds under epoch 7. It reads them too.
pub struct Held {
    pub test: TestDatabase,
    pub database: Database,
    pub process: ProcessId,
    day: jiff::civil::Date,
}

pub async fn held(cursors: i64, events: i64) -> Held {
    let test = TestDatabase::new().await;
    migrated(&test);
    let process = ProcessId::new_v4();
    test.execute(&format!(
        "insert into oncebox.workflow (id) values ('w');
         insert into oncebox.cursor (id, workflow, cluster, topic, topic_id, partition, start_offset, next_offset, claimed_to,
                                     delivery_epoch, owner, owner_epoch)
         select n, 'w', 'c', 't', 'i', n, 0, {events}, {events}, {FENCE}, '{process}'::uuid, {FENCE}
           from generate_series(1, {cursors}) as n;
         insert into oncebox.delivery (cursor, workflow, owner, epoch, lease_until, settled_to, timeline)
         select n, 'w', '{process}'::uuid, {FENCE}, clock_timestamp() + interval '1 hour', 0, {TIMELINE}
           from generate_series(1, {cursors}) as n;
         insert into oncebox.outbox (cursor, record_offset, event_index, generation, day, key, event_type, content_type,
                                     source_at, created_at, config_version, body)
         select c, o, 0, 0, oncebox.today(), 'k', 't', 'text/plain', 0, now(), 1, 'x'::bytea
           from generate_series(1, {cursors}) as c, generate_series(0, {events} - 1) as o"
    ))
    .await;
    let day = test.query("select day from oncebox.outbox limit 1", &[]).await[0].get(0);
    Held { database: test.opened(), test, process, day }
}

impl Held {
    /// A 2xx to a first attempt that was sent under this epoch.
    pub fn answer(&self, cursor: i64, offset: i64, epoch: i64) -> Completion {
        let place = Place { cursor: CursorId(cursor), offset, index: 0, generation: 0 };
        let event = EventRef { place, day: self.day, body_bytes: 1, record_at: Some(0), lane: None };
        Completion { event, right: Right::Range { epoch }, sends: 1, status: Some(200) }
    }

    async fn settle(&self, batch: &[Completion]) -> Vec<Settled> {
        settle::completed(&self.database, self.process, batch).await.expect("it runs")
    }

    /// What is counted as completed of each cursor: events and bytes.
    async fn counted(&self) -> Vec<(i64, i64)> {
        let rows = self.test.query("select completed, settled_bytes from oncebox.delivery order by cursor", &[]).await;
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    async fn done(&self) -> i64 {
        self.test.count("select count(*) from oncebox.done where state = 'completed'").await
    }
}

pub async fn connected() -> Client {
    let (client, connection) =
        tokio_postgres::connect(&services().database_url, NoTls).await.expect("Postgres answers");
    tokio::spawn(connection);
    client
}

/// After a failover that lost commits: the event was stored anew and sent under a newer epoch before the first answer was written down.
#[tokio::test]
async fn an_event_that_is_answered_twice_in_one_batch_ends_once_and_the_batch_goes_on() {
    let held = held(1, 3).await;
    let batch = [held.answer(1, 0, FENCE - 1), held.answer(1, 0, FENCE), held.answer(1, 1, FENCE)];
    let ends = held.settle(&batch).await;
    assert_eq!(ends, [Settled::AlreadyDone, Settled::Recorded, Settled::Recorded]);
    assert_eq!((held.counted().await, held.done().await), (vec![(2, 2)], 2));
    // A binary of before asks for both.
    let both = "select count(*) from oncebox.outbox as o
                  cross join lateral oncebox.finish(array[o.cursor, o.cursor], array[o.record_offset, o.record_offset], '{0,0}', '{0,0}',
                                                    array[o.day, o.day], 'completed', '{1,2}', '{200,200}') as f
                 where o.record_offset = 2";
    assert_eq!(held.test.count(both).await, 1);
    assert_eq!(held.done().await, 3);
}

#[tokio::test]
async fn a_retry_that_is_answered_under_two_fences_in_one_batch_ends_once() {
    for others in [Right::Retry { fence: FENCE - 1 }, Right::Range { epoch: FENCE - 1 }] {
        let case = case(true).await;
        let answer = |right| Completion { event: case.event.clone(), right, sends: 2, status: Some(200) };
        let batch = [answer(Right::Retry { fence: FENCE }), answer(others)];
        let ends = settle::completed(&case.database, case.process, &batch).await.expect("it runs");
        let firsts = ends.iter().filter(|settled| **settled != Settled::AlreadyDone).count();
        assert_eq!(firsts, 1, "{others:?}: {ends:?}");
        assert_eq!(case.test.count("select completed from oncebox.delivery").await, 1, "{others:?}");
        assert_eq!(case.test.count("select count(*) from oncebox.retry").await, 0, "{others:?}");
    }
}

#[tokio::test]
async fn one_lost_delivery_in_a_batch_costs_the_others_nothing() {
    let held = held(3, 5).await;
    held.test
        .execute("update oncebox.delivery set epoch = epoch + 1, owner = gen_random_uuid() where cursor = 2")
        .await;
    let places = (1..=3).flat_map(|cursor| (0..5).map(move |offset| (cursor, offset)));
    let batch: Vec<Completion> = places.map(|(cursor, offset)| held.answer(cursor, offset, FENCE)).collect();
    // The second time as after a lost reply.
    for (of_the_lost, of_the_others) in
        [(Settled::Late, Settled::Recorded), (Settled::AlreadyDone, Settled::AlreadyDone)]
    {
        for (answer, settled) in batch.iter().zip(held.settle(&batch).await) {
            let place = answer.event.place;
            let wanted = if place.cursor == CursorId(2) { of_the_lost } else { of_the_others };
            assert_eq!(settled, wanted, "{place}");
        }
        assert_eq!((held.counted().await, held.done().await), (vec![(5, 5); 3], 15));
    }
}

#[tokio::test]
async fn an_answer_is_late_however_its_delivery_was_lost() {
    let held = held(1, 4).await;
    let ways = [
        "epoch = epoch + 1",
        "owner = gen_random_uuid()",
        "lease_until = clock_timestamp() - interval '1 second'",
        "timeline = '00000000'",
    ];
    for (offset, way) in (0..).zip(ways) {
        held.test
            .execute(&format!(
                "update oncebox.delivery set owner = '{}', epoch = {FENCE}, timeline = {TIMELINE},
                        lease_until = clock_timestamp() + interval '1 hour';
                 update oncebox.delivery set {way}",
                held.process
            ))
            .await;
        let batch = [held.answer(1, offset, FENCE)];
        assert_eq!(held.settle(&batch).await, [Settled::Late], "{way}");
        assert_eq!(held.counted().await, [(offset + 1, offset + 1)], "{way}");
    }
    assert_eq!(held.done().await, 4);
}

#[tokio::test]
async fn an_end_that_waited_for_a_take_over_is_not_written_under_the_old_epoch() {
    let held = held(1, 1).await;
    let mut taker = connected().await;
    let taker_pid: i32 = taker.query_one("select pg_backend_pid()", &[]).await.expect("it runs").get(0);
    let taking = taker.transaction().await.expect("it begins");
    let take = Schema::new(&held.test.schema).text(include_str!("../../sql/relay/take_delivery.sql"));
    // The process takes its own delivery anew: nothing but the epoch is another.
    let taken = taking.query_one(&*take, &[&1_i64, &held.process, &3600.0_f64]).await.expect("it is taken");
    assert!(taken.get::<_, i64>("epoch") > FENCE);
    let batch = [held.answer(1, 0, FENCE)];
    let (database, process, asked) = (held.database.clone(), held.process, batch.clone());
    let waiting = tokio::spawn(async move { settle::completed(&database, process, &asked).await.expect("it runs") });
    let blocked = "select count(*) from pg_stat_activity where $1 = any (pg_blocking_pids(pid))";
    eventually("the end waits for the take-over", PATIENCE, async || {
        let rows = held.test.query(blocked, &[&taker_pid]).await;
        (rows[0].get::<_, i64>(0) > 0).then_some(())
    })
    .await;
    assert_eq!(held.done().await, 0);
    taking.commit().await.expect("it is committed");
    assert_eq!(waiting.await.expect("it ends"), [Settled::Late]);
    assert_eq!((held.counted().await, held.done().await), (vec![(1, 1)], 1));
}

/// One relay with one partition whose event at offset 3 Postgres refuses to end, until the constraint is gone. All others end meanwhile,
/// those that are sent with it and those after it, and each is sent once.
async fn one_is_refused(answer: fn() -> Answer, table: &str, constraint: &str) {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(move |_| answer()).await;
    let mut config = Config::new(&topic, &database, &receiver);
    // Longer than Postgres refuses it: nothing is taken for lost meanwhile.
    (config.timeout, config.lease) = ("10s", "60s");
    let relay = Relay::start(&config);
    relay.ready().await;
    database.execute(&format!("alter table oncebox.{table} add constraint refused check ({constraint})")).await;
    for (sent, ended) in [(0..10, 9), (10..20, 19)] {
        topic.send_orders(sent);
        eventually(&format!("{ended} have ended"), PATIENCE, async || {
            (database.count("select count(*) from oncebox.done").await == ended).then_some(())
        })
        .await;
    }
    assert_eq!(database.count("select count(*) from oncebox.done where record_offset = 3").await, 0);
    database.execute(&format!("alter table oncebox.{table} drop constraint refused")).await;
    eventually("the last one has ended", PATIENCE, async || {
        (database.count("select count(*) from oncebox.done").await == 20).then_some(())
    })
    .await;
    assert_eq!(receiver.seen().len(), 20, "each was sent once");
    drop(relay);
}

#[tokio::test]
async fn a_delivery_that_postgres_refuses_to_end_holds_up_nobody_else() {
    one_is_refused(|| Answer::Process, "ended", "block <> 0 or not oncebox.has(bits, 3)").await;
}

#[tokio::test]
async fn a_dead_letter_that_postgres_refuses_holds_up_nobody_else() {
    one_is_refused(|| Answer::status(422), "dead_letter", "record_offset <> 3").await;
}
