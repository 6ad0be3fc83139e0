//! Reading, sending and answering operators in processes of their own: all of it is done, once, and by whom it should be.

use std::time::Duration;

use oncebox::event::{CursorId, ProcessId};
use oncebox::outbox::delivery::{self, Progress, TakeOver};
use oncebox::receiver::Answer;
use serde_json::json;

use crate::fences::TIMELINE;
use crate::fleet::{AtOnce, all_applied};
use crate::support::process::{Config, migrated, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

async fn sum(relays: &[Relay], metric: &str) -> Vec<f64> {
    let mut found = Vec::new();
    for relay in relays {
        found.push(relay.metric(metric, "orders").await.unwrap_or(0.0));
    }
    found
}

#[tokio::test]
async fn one_reads_one_sends_and_one_replays() {
    let (topic, database) = (Topic::new(4).await, TestDatabase::new().await);
    // The first of each ten is refused until it is replayed, every other fails once.
    let receiver = TestReceiver::deciding(|seen| match (seen.event.contains(".r"), seen.attempt) {
        (false, _) if crate::direct::order(seen).is_multiple_of(10) => Answer::status(422),
        (false, 1) if crate::direct::order(seen).is_multiple_of(2) => Answer::status(503),
        _ => Answer::Process,
    })
    .await;
    let config = Config::new(&topic, &database, &receiver);
    let relays = ["ingest", "relay", "admin"].map(|role| Relay::start_as(role, &config));
    let [reader, sender, admin] = &relays;
    for relay in &relays {
        relay.ready().await;
    }
    topic.send_orders(0..200);
    all_applied(&receiver, 180).await;
    let letters = async || (database.count("select count(*) from oncebox.dead_letter").await == 20).then_some(());
    eventually("what is refused is dead", PATIENCE, letters).await;
    assert_eq!(sum(&relays, "oncebox_ingested_total").await, [200.0, 0.0, 0.0], "one reads");
    let sent = sum(&relays, "oncebox_attempts_total").await;
    assert!(sent[0] == 0.0 && sent[1] >= 200.0 && sent[2] == 0.0, "one sends: {sent:?}");
    for other in [reader, sender] {
        let (status, body) = other.call("GET", "/v1/workflows", None, None).await;
        assert_eq!(status, 404, "{body}");
        assert!(body["error"]["message"].as_str().is_some_and(|message| message.contains("admin")), "{body}");
    }
    let (status, body) = admin.call("POST", "/v1/dead-letters/replay", None, Some(json!({"workflow": "orders"}))).await;
    assert_eq!(status, 202, "{body}");
    all_applied(&receiver, 200).await;
    let event = json!({"type": "OrderPlaced", "data": {"id": 207}, "key": "order-207"});
    let (status, body) = admin.call("POST", "/v1/workflows/orders/events", None, Some(event)).await;
    assert_eq!(status, 201, "{body}");
    all_applied(&receiver, 201).await;
    // What it knows of its own work is nothing, which is not the same as no work.
    let (_, workflow) = admin.call("GET", "/v1/workflows/orders", None, None).await;
    assert!(workflow["live"].is_null(), "{workflow}");
    eventually("it knows what waits in Kafka", PATIENCE, async || {
        let (_, workflow) = admin.call("GET", "/v1/workflows/orders", None, None).await;
        (workflow["kafkaLagRecords"] == 0).then_some(())
    })
    .await;
    let (status, _) = admin.call("POST", "/v1/workflows/orders/pause", None, Some(json!({"reason": "a look"}))).await;
    assert_eq!(status, 200);
    let state = r#"state="paused",workflow="orders""#;
    eventually("the sender knows of the pause", PATIENCE, async || {
        sender.metric("oncebox_workflow_state", state).await.filter(|value| *value == 1.0)
    })
    .await;
}

#[tokio::test]
async fn those_that_send_share_what_another_reads_and_one_goes_on_for_one_that_died() {
    let (topic, database, receiver) = (Topic::new(4).await, TestDatabase::new().await, TestReceiver::start().await);
    let config = Config::new(&topic, &database, &receiver);
    let _reader = Relay::start_as("ingest", &config);
    let mut senders = [Relay::start_as("relay", &config), Relay::start_as("relay", &config)];
    let held = async || {
        let rows = database.query("select owner::text, count(*) from oncebox.delivery group by owner", &[]).await;
        let owners = rows.iter().filter(|row| row.get::<_, Option<&str>>(0).is_some());
        let counts: Vec<i64> = owners.map(|row| row.get(1)).collect();
        (counts == [2, 2]).then_some(())
    };
    topic.send_orders(0..100);
    all_applied(&receiver, 100).await;
    eventually("each holds half of the partitions", PATIENCE, held).await;
    topic.send_orders(100..500);
    all_applied(&receiver, 500).await;
    let sent = sum(&senders, "oncebox_attempts_total").await;
    assert!(sent.iter().all(|sent| *sent > 0.0), "both send: {sent:?}");
    assert_eq!(receiver.seen().len(), 500, "and each event once, whoever had its partition before");
    senders[0].kill();
    topic.send_orders(500..600);
    all_applied(&receiver, 600).await;
}

#[tokio::test]
async fn what_only_reads_takes_no_part_of_what_may_be_under_way() {
    let (topic, database, at_once) = (Topic::new(4).await, TestDatabase::new().await, AtOnce::default());
    let counted = at_once.clone();
    let receiver = TestReceiver::deciding(move |_| counted.answer(Duration::from_secs(1))).await;
    let mut config = Config::new(&topic, &database, &receiver);
    (config.timeout, config.lease) = ("5s", "15s");
    config.delivery.push_str("\n      concurrency: 3");
    // With a part for each of them one request would be under way, or none: the sender comes last.
    let readers = [0, 1, 2].map(|_| Relay::start_as("ingest,admin", &config));
    for relay in &readers {
        relay.ready().await;
    }
    let _sender = Relay::start_as("relay", &config);
    topic.send_orders(0..12);
    eventually("three are under way", PATIENCE, async || (at_once.most() >= 3).then_some(())).await;
    all_applied(&receiver, 12).await;
    assert_eq!(at_once.most(), 3);
}

#[tokio::test]
async fn what_needs_no_outbox_is_read_by_whoever_sends_it() {
    let (topic, database, receiver) = (Topic::new(2).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.guarantee = "idempotent-keys";
    let relays = ["ingest", "relay"].map(|role| Relay::start_as(role, &config));
    for relay in &relays {
        relay.ready().await;
    }
    topic.send_orders(0..100);
    all_applied(&receiver, 100).await;
    assert_eq!(database.count("select count(*) from oncebox.outbox").await, 0);
    let sent = sum(&relays, "oncebox_attempts_total").await;
    assert_eq!(sent, [0.0, 100.0]);
}

/// One deployment becomes three, and three become one, with events coming in all the time.
#[tokio::test]
async fn roles_are_taken_apart_and_put_together_again_under_load() {
    let (topic, database, receiver) = (Topic::new(4).await, TestDatabase::new().await, TestReceiver::start().await);
    let config = Config::new(&topic, &database, &receiver);
    let mut all = Relay::start(&config);
    topic.send_orders(0..200);
    eventually("some arrive", PATIENCE, async || (receiver.applied() >= 50).then_some(())).await;
    let mut apart = [Relay::start_as("ingest", &config), Relay::start_as("relay", &config)];
    for relay in &apart {
        relay.ready().await;
    }
    topic.send_orders(200..400);
    assert_eq!(all.stop().await, Some(0));
    topic.send_orders(400..600);
    all_applied(&receiver, 600).await;
    let again = Relay::start(&config);
    again.ready().await;
    topic.send_orders(600..700);
    for relay in &mut apart {
        assert_eq!(relay.stop().await, Some(0));
    }
    topic.send_orders(700..900);
    all_applied(&receiver, 900).await;
    assert_eq!(receiver.seen().len(), 900, "each once: nobody died");
}

/// Those that came first make all the requests there may be, and only one that came later reads.
#[tokio::test]
async fn one_that_stands_by_reads_on_where_the_others_only_send() {
    let (topic, database, receiver) = (Topic::new(2).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery.push_str("\n      concurrency: 1");
    let sender = Relay::start_as("relay", &config);
    sender.ready().await;
    let other = Relay::start(&config);
    eventually("it stands by", PATIENCE, async || other.log().contains("standing by").then_some(())).await;
    topic.send_orders(0..20);
    all_applied(&receiver, 20).await;
    assert_eq!(receiver.seen().len(), 20);
}

#[tokio::test]
async fn a_role_that_no_process_has_is_told_of_and_nothing_is_replayed_to_nobody() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let config = Config::new(&topic, &database, &receiver);
    let admin = Relay::start_as("admin", &config);
    admin.ready().await;
    let shown = async |is_read: bool, is_sent: bool| {
        eventually(&format!("read: {is_read}, sent: {is_sent}"), PATIENCE, async || {
            let (_, workflow) = admin.call("GET", "/v1/workflows/orders", None, None).await;
            (workflow["isRun"] == true && workflow["isRead"] == is_read && workflow["isSent"] == is_sent).then_some(())
        })
        .await;
        let status = oncebox(&["status"], &admin.config_path());
        let said = String::from_utf8_lossy(&status.stdout).into_owned();
        assert_eq!(said.contains("orders: no process reads it"), !is_read, "{said}");
        assert_eq!(said.contains("orders: no process sends it"), !is_sent, "{said}");
    };
    let replay = async || {
        let filter = Some(json!({"workflow": "orders"}));
        let (status, body) = admin.call("POST", "/v1/dead-letters/replay", None, filter).await;
        (status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    shown(false, false).await;
    assert_eq!(replay().await, (409, "workflow_not_sent".to_owned()));
    let _reader = Relay::start_as("ingest", &config);
    shown(true, false).await;
    assert_eq!(replay().await.0, 409);
    let _sender = Relay::start_as("relay", &config);
    shown(true, true).await;
    assert_eq!(replay().await, (202, String::new()));
}

#[tokio::test]
async fn one_that_only_reads_keeps_no_delivery_on_the_move() {
    let (topic, database, receiver) = (Topic::new(4).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    (config.timeout, config.lease) = ("1s", "3s");
    let relays = ["ingest", "ingest,relay,admin"].map(|roles| Relay::start_as(roles, &config));
    for relay in &relays {
        relay.ready().await;
    }
    topic.send_orders(0..100);
    all_applied(&receiver, 100).await;
    // Epochs, and how long leases last at the least.
    let held = async || {
        let text =
            "select array_agg(epoch order by cursor), extract(epoch from min(lease_until))::float8, count(lease_until)
                      from oncebox.delivery";
        let row = database.query(text, &[]).await.remove(0);
        let (epochs, lease_until): (Vec<i64>, Option<f64>) = (row.get(0), row.get(1));
        lease_until.filter(|_| row.get::<_, i64>(2) == 4).map(|lease_until| (epochs, lease_until))
    };
    let (before, lease_until) = eventually("each has an owner", PATIENCE, held).await;
    // Each was extended several times by then.
    let extended = async || held().await.filter(|(_, later)| *later > lease_until + 6.0);
    let (after, _) = eventually("leases are extended", PATIENCE, extended).await;
    assert_eq!(after, before, "nobody else took one meanwhile");
}

/// Postgres was away for longer than a lease, and of those who hold deliveries one is the first to say that it is there.
#[tokio::test]
async fn nobody_takes_over_from_others_just_because_an_outage_was_long() {
    let test = TestDatabase::new().await;
    migrated(&test);
    let [reader, first, second, old] = [(); 4].map(|()| ProcessId::new_v4());
    test.execute(&format!(
        "insert into oncebox.workflow (id) values ('w');
         insert into oncebox.cursor (id, workflow, cluster, topic, topic_id, partition, start_offset, next_offset, claimed_to, owner)
         select n, 'w', 'c', 't', 'i', n, 0, 10, 5, '{reader}' from generate_series(0, 3) as n;
         insert into oncebox.delivery (cursor, workflow, owner, epoch, lease_until, settled_to, timeline)
         select n, 'w', case when n < 2 then '{first}' else '{second}' end::uuid, 7, now() - interval '1 minute', 0, {TIMELINE}
           from generate_series(0, 3) as n;
         insert into oncebox.process (id, workflows, seen_at, under_way, firsts, sends, reads, takes)
         values ('{reader}', array['w'], now() - interval '1 minute', '{{0}}', '{{0}}', false, true, '{{}}'),
                ('{first}', array['w'], clock_timestamp(), '{{0}}', '{{0}}', true, false, array['w']),
                ('{second}', array['w'], now() - interval '1 minute', '{{0}}', '{{0}}', true, false, array['w'])"
    ))
    .await;
    let database = test.opened();
    let (lease, held) = (Duration::from_secs(30), [CursorId(0), CursorId(1)]);
    let free = async |take_over| {
        let found = delivery::look(&database, "w", (first, lease), (&held, false), take_over).await.unwrap();
        let mut free: Vec<i64> = found.free.iter().map(|cursor| cursor.0).collect();
        free.sort_unstable();
        free
    };
    assert_eq!(free(TakeOver::Nobodys).await, [0_i64; 0], "just after an outage");
    assert_eq!(free(TakeOver::Expired).await, [2, 3], "when there was time to say so");
    let timeline: String = test.query(&format!("select {TIMELINE}"), &[]).await[0].get(0);
    let kept = async |process, cursor| {
        let progress =
            Progress { cursor: CursorId(cursor), epoch: 7, settled_to: 0, timeline: timeline.as_str().into() };
        delivery::extend(&database, "w", (process, lease), &[progress]).await.unwrap()
    };
    let kept_by_second = kept(second, 2).await;
    assert_eq!(
        kept_by_second.iter().map(|kept| kept.wanted).collect::<Vec<_>>(),
        [false],
        "it does not know who is there"
    );
    // A binary of before follows who reads. As long as it is there, all do, or both would leave a delivery to the other.
    test.execute(&format!(
        "update oncebox.process set seen_at = clock_timestamp();
         insert into oncebox.process (id, workflows, seen_at, under_way, firsts) values ('{old}', array['w'], clock_timestamp(), '{{0}}', '{{0}}')"
    ))
    .await;
    let apart = "select count(*) from oncebox.senders('w', 5) where apart";
    assert_eq!(test.count(apart).await, 0);
    let wanted = async |process, cursor| kept(process, cursor).await.iter().any(|kept| kept.wanted);
    assert!(!wanted(first, 0).await, "whoever reads it does not send");
    test.execute("update oncebox.cursor set owner = (select id from oncebox.process where takes is null)").await;
    assert!(wanted(first, 0).await, "whoever reads it sends");
    test.execute("update oncebox.cursor set owner = gen_random_uuid()").await;
    assert!(!wanted(first, 0).await, "whoever read it is gone");
    test.execute(&format!("delete from oncebox.process where id = '{old}'")).await;
    assert_eq!(test.count(apart).await, 2);
}
