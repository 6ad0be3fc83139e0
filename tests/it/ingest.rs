//! Ingest: what happens to records and offsets when the topic misbehaves.

use std::time::Duration;

use crate::support::process::{Config, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, embedded, eventually, kafka};

async fn setup(partitions: i32) -> (Topic, TestDatabase, TestReceiver) {
    (Topic::new(partitions).await, TestDatabase::new().await, TestReceiver::start().await)
}

async fn applied(receiver: &TestReceiver, count: usize) {
    eventually(&format!("{count} events are applied"), PATIENCE, async || (receiver.applied() == count).then_some(()))
        .await;
}

#[tokio::test]
async fn records_that_cannot_be_read_become_dead_letters_and_the_rest_flows_on() {
    if embedded::lacks("records of 5 MiB") {
        return;
    }
    let (topic, database, receiver) = setup(1).await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let large = format!("\"{}\"", "x".repeat(5 << 20));
    let bad: [&[u8]; 6] = [b"{not json", b"\xff\xfe", b"", b"[1,]", deep.as_bytes(), large.as_bytes()];
    for value in bad {
        topic.send_raw(Some(0), Some(b"k"), Some(value), None);
    }
    topic.send_raw(Some(0), None, None, None);
    topic.send_raw(Some(0), Some(b"k"), Some(br#"{"id":1}"#), Some(kafka::header("traceparent", "not one")));
    topic.flush();
    let mut relay = Relay::start(&Config::new(&topic, &database, &receiver));
    applied(&receiver, 1).await;

    let rows = database.query("select reason, count(*) from oncebox.dead_letter group by 1 order by 1", &[]).await;
    let reasons: Vec<(String, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(reasons, [("invalid".to_owned(), 5), ("too_large".to_owned(), 1)]);
    // The raw bytes are kept whole.
    let kept: Vec<u8> =
        database.query("select body from oncebox.dead_letter where record_offset = 1", &[]).await[0].get(0);
    assert_eq!(kept, b"\xff\xfe");
    // The tombstone is on the ledger, and every offset has one disposition.
    assert_eq!(database.count("select count(*) from oncebox.ledger where 6::bigint <@ tombstones").await, 1);
    assert_eq!(database.count("select next_offset from oncebox.cursor").await, 8);
    assert_eq!(relay.stop().await, Some(0));
}

#[tokio::test]
async fn a_header_name_of_any_bytes_harms_nobody() {
    let (topic, database, receiver) = setup(1).await;
    topic.send_with_raw_header(b"\xff\xfename", b"value", br#"{"id":1}"#);
    let relay = Relay::start(&Config::new(&topic, &database, &receiver));
    applied(&receiver, 1).await;
    assert_eq!(relay.get("/healthz").await.map(|(status, _)| status), Some(200));
}

#[tokio::test]
async fn a_partition_added_under_load_is_read_from_its_beginning() {
    if embedded::lacks("added partitions") {
        return;
    }
    let (topic, database, receiver) = setup(1).await;
    topic.send_orders(0..50);
    let relay = Relay::start(&Config::new(&topic, &database, &receiver));
    applied(&receiver, 50).await;
    let mut sent = 50;
    let mut flow = |count: i32| {
        for id in sent..sent + count {
            topic.send_raw(Some(0), Some(b"k"), Some(format!(r#"{{"id":{id}}}"#).as_bytes()), None);
        }
        sent += count;
    };
    flow(2_000);
    topic.grow(3).await;
    flow(2_000);
    // Records arrive in the new partitions before anybody has noticed them.
    for id in 0..30 {
        let value = format!(r#"{{"id":"new-{id}"}}"#);
        topic.send_raw(Some(1 + id % 2), Some(b"k"), Some(value.as_bytes()), None);
    }
    topic.flush();
    assert!(receiver.applied() < 4_050, "the old partition is still being read as the new ones come");
    let read = "select count(*) from oncebox.cursor where partition > 0 and next_offset = 15";
    eventually("the new partitions are read", PATIENCE, async || {
        flow(20);
        topic.flush();
        (database.count(read).await == 2).then_some(())
    })
    .await;
    let sent = usize::try_from(sent).expect("a count") + 30;
    applied(&receiver, sent).await;
    assert_eq!(receiver.lines().len(), sent, "nothing came twice");
    drop(relay);
    let starts = database.query("select start_offset from oncebox.cursor where partition > 0", &[]).await;
    assert_eq!(starts.iter().map(|row| row.get::<_, i64>(0)).collect::<Vec<_>>(), [0, 0]);
}

#[tokio::test]
async fn start_from_latest_skips_what_was_there_and_nothing_after() {
    let (topic, database, receiver) = setup(2).await;
    topic.send_orders(0..20);
    let mut config = Config::new(&topic, &database, &receiver);
    config.source = "startFrom: latest".to_owned();
    let mut relay = Relay::start(&config);
    relay.ready().await;
    assert_eq!(relay.stop().await, Some(0));
    // While it is away: the start was stored for all partitions, so these are read.
    topic.send_orders(20..50);
    let _relay = Relay::start(&config);
    applied(&receiver, 30).await;
}

#[tokio::test]
async fn too_much_waiting_pauses_the_reader() {
    let topic = Topic::new(1).await;
    let database = TestDatabase::new().await;
    let open = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let gate = open.clone();
    let receiver = TestReceiver::deciding(move |_| {
        use oncebox::receiver::Answer;
        if gate.load(std::sync::atomic::Ordering::Acquire) { Answer::Process } else { Answer::status(503) }
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery = "maxWaiting: 500\n      retries: {backoff: [300ms]}".to_owned();
    let relay = Relay::start(&config);
    relay.ready().await;
    for batch in 0..20 {
        topic.send_orders(batch * 1000..(batch + 1) * 1000);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    eventually("the reader pauses", PATIENCE, async || {
        relay.log().contains("too much waits; reading pauses").then_some(())
    })
    .await;
    let stored = database.count("select sum(appended)::bigint from oncebox.cursor").await;
    assert!(stored < 20_000, "{stored} of 20000 were stored although only 500 may wait");
    open.store(true, std::sync::atomic::Ordering::Release);
    applied(&receiver, 20_000).await;
}

#[tokio::test]
async fn a_record_that_kills_the_process_becomes_a_dead_letter_and_its_neighbours_are_delivered() {
    gives_a_deadly_record_up("exactly-once").await;
}

#[tokio::test]
async fn a_record_that_kills_the_process_on_the_direct_path_becomes_a_dead_letter_too() {
    gives_a_deadly_record_up("idempotent-keys").await;
}

async fn gives_a_deadly_record_up(guarantee: &'static str) {
    let (topic, database, receiver) = setup(1).await;
    for id in 0..5 {
        let value = format!(r#"{{"id":{id},"endless":{}}}"#, id == 2);
        topic.send_raw(Some(0), Some(b"k"), Some(value.as_bytes()), None);
    }
    topic.flush();
    let mut config = Config::new(&topic, &database, &receiver);
    config.extra = "transform: 'if .endless then last(range(1e18)) else {id} end'".to_owned();
    config.kafka = "group.instance.id: poison".to_owned();
    config.guarantee = guarantee;
    for _ in 0..10 {
        let mut relay = Relay::start(&config);
        let dead = "select count(*) from oncebox.dead_letter where record_offset = 2 and reason = 'invalid'";
        let over = eventually("the record is dead, or the process", PATIENCE, async || match relay.has_ended() {
            true => Some(false),
            false => (database.count(dead).await == 1).then_some(true),
        })
        .await;
        if over {
            applied(&receiver, 4).await;
            let detail: String = database.query("select detail from oncebox.dead_letter", &[]).await[0].get(0);
            assert!(detail.contains("died"), "{detail}");
            return;
        }
        assert!(relay.log().contains("longer than 5s"), "the log names the record");
    }
    panic!("the record was never given up");
}

#[tokio::test]
async fn moving_back_reads_again_with_the_same_keys_and_loses_nothing_that_waited() {
    if embedded::lacks("a cluster that describes its topics") {
        return;
    }
    let (topic, database, receiver) = setup(1).await;
    topic.send_orders(0..30);
    let relay = Relay::start(&Config::new(&topic, &database, &receiver));
    applied(&receiver, 30).await;
    let output = oncebox(&["offsets", "set", "orders", "--to", "10"], &relay.config_path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eventually("the last twenty come again", PATIENCE, async || (receiver.lines().len() == 50).then_some(())).await;
    assert_eq!(receiver.applied(), 30, "under the same keys");
    let again: Vec<String> = receiver.lines().iter().skip(30).map(|line| line.event.clone()).collect();
    assert!(again.iter().all(|event| event.ends_with(".r1000")), "{again:?}");
    let gap = &database.query("select from_offset, to_offset, reason from oncebox.gap", &[]).await[0];
    assert_eq!((gap.get::<_, i64>(0), gap.get::<_, i64>(1), gap.get::<_, &str>(2)), (30, 10, "operator"));
    assert_eq!(database.count("select count(*) from oncebox.audit where action = 'offsets set'").await, 1);
}

/// As after a failover that lost the last commits, with a topic that is quiet since. Deliveries know a failover by the
/// server's timeline, which stays here: theirs is taken away instead.
#[tokio::test]
async fn a_cursor_that_fell_back_is_read_from_again_without_a_new_record() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let relay = Relay::start(&Config::new(&topic, &database, &receiver));
    topic.send_orders(0..20);
    let done = "select count(*) from oncebox.done";
    eventually("all are done", PATIENCE, async || (database.count(done).await == 20).then_some(())).await;
    database
        .execute(
            "begin;
             update oncebox.cursor set next_offset = 15, claimed_to = 15, appended = 15;
             update oncebox.delivery set settled_to = 15, completed = 15, owner = null, lease_until = null;
             delete from oncebox.outbox where record_offset >= 15;
             update oncebox.ended set bits = bits & ((1 << 15) - 1);
             commit",
        )
        .await;
    eventually("the rest is stored again", PATIENCE, async || (database.count(done).await == 20).then_some(())).await;
    assert_eq!(receiver.applied(), 20, "under the same keys");
    drop(relay);
}
