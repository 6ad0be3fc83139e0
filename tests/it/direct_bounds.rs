//! What the direct path holds in memory is bounded, also when nothing that fails can be stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use oncebox::receiver::Answer;

use crate::direct::{all_applied, all_marked, config, marked, rows};
use crate::support::gate::Gate;
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

const CONCURRENCY: usize = 16;
/// Failures that wait to be stored, from which on nothing more starts: `Dispatcher::most_ahead` with few slots.
const MOST_STORING: usize = 1_000;
/// Records that were read and are not over, from which on partitions pause, and what one more turn of the reader can add:
/// `outbox::load` and `ingest::consumer`.
const MOST_READ: f64 = 10_000.0 + 1_000.0;
const DELIVERED_BEFORE: u32 = 100;
const RECORDS: u32 = 14_000;

// The gate must go on while the test waits for a process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_postgres_away_failures_wait_in_memory_only_up_to_a_bound_and_none_is_lost() {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let (refuses, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (is_refusing, counted) = (Arc::clone(&refuses), Arc::clone(&refused));
    let receiver = TestReceiver::deciding(move |_| match is_refusing.load(Ordering::Acquire) {
        true => {
            counted.fetch_add(1, Ordering::AcqRel);
            Answer::status(503)
        }
        false => Answer::Process,
    })
    .await;
    let (gate, through) = Gate::to_postgres().await;
    let mut config = config(&topic, &database, &receiver);
    config.delivery.push_str(&format!("\n      concurrency: {CONCURRENCY}"));
    let relay = Relay::start_in(&config, "", &[("DATABASE_URL", through.as_str())]);
    topic.send_orders(0..DELIVERED_BEFORE);
    all_applied(&receiver, DELIVERED_BEFORE as usize).await;
    all_marked(&topic, &database, 2, i64::from(DELIVERED_BEFORE)).await;

    refuses.store(true, Ordering::Release);
    gate.shut();
    topic.send_orders(DELIVERED_BEFORE..RECORDS);
    let (mut last, mut since) = ((0, 0.0), Instant::now());
    let (requests, read) = eventually("nothing more is read or sent", PATIENCE, async || {
        let read = relay.metric("oncebox_ingested_total", "workflow=\"orders\"").await.unwrap_or_default();
        let now = (refused.load(Ordering::Acquire), read);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        (now.0 >= MOST_STORING && since.elapsed() >= Duration::from_secs(2)).then_some(now)
    })
    .await;
    // The last that starts finds one failure fewer than the most, and every other slot taken.
    assert!(
        (MOST_STORING..MOST_STORING + CONCURRENCY).contains(&requests),
        "{requests} requests were made while none of their failures could be stored"
    );
    let most_read = f64::from(DELIVERED_BEFORE) + MOST_READ;
    // A record or two may slip through before a pause holds.
    assert!(read <= most_read + 100.0, "{read} of {RECORDS} records were read: the partitions did not pause");
    assert_eq!(rows(&database, "spilled").await, 0, "Postgres is away");
    let mark: i64 = marked(&topic, &database, 2).iter().map(|(offset, _)| offset).sum();
    assert_eq!(mark, i64::from(DELIVERED_BEFORE), "nothing is marked that is neither delivered nor stored");

    refuses.store(false, Ordering::Release);
    gate.open();
    all_applied(&receiver, RECORDS as usize).await;
    all_marked(&topic, &database, 2, i64::from(RECORDS)).await;
    eventually("nothing waits", PATIENCE, async || (rows(&database, "retry").await == 0).then_some(())).await;
    assert_eq!(rows(&database, "spilled").await, requests as i64, "what failed is stored, and nothing else");
    assert_eq!(rows(&database, "dead_letter").await, 0);
    drop(relay);
}
