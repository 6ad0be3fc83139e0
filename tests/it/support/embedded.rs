//! Where no real broker can be had (`KAFKA_BROKERS=embedded`): librdkafka's mock cluster, in the tests' own process.
//!
//! It forgets nothing while it runs, but knows no transactions, no retention and no operator's requests. Tests that need
//! those say so and count as skipped.

use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};

use rdkafka::mocking::MockCluster;

use super::{services, skip};

pub const NAME: &str = "embedded";

struct Embedded {
    brokers: String,
    topics: SyncSender<(String, i32, SyncSender<()>)>,
}

/// Started once, on a thread of its own, for as long as the tests run.
fn embedded() -> &'static Embedded {
    static EMBEDDED: OnceLock<Embedded> = OnceLock::new();
    EMBEDDED.get_or_init(|| {
        let (started, address) = sync_channel(1);
        let (topics, asked) = sync_channel::<(String, i32, SyncSender<()>)>(0);
        std::thread::spawn(move || {
            let cluster = MockCluster::new(1).expect("librdkafka's mock cluster");
            started.send(cluster.bootstrap_servers()).expect("somebody waits");
            for (name, partitions, made) in asked {
                cluster.create_topic(&name, partitions, 1).expect("a topic");
                let _ = made.send(());
            }
        });
        Embedded { brokers: address.recv().expect("the cluster starts"), topics }
    })
}

pub fn brokers() -> String {
    embedded().brokers.clone()
}

pub fn create_topic(name: &str, partitions: i32) {
    let (made, done) = sync_channel(1);
    embedded().topics.send((name.to_owned(), partitions, made)).expect("the cluster runs");
    done.recv().expect("the topic is made");
}

/// Whether a test must give up here, because only a real broker does what it is about.
pub fn lacks(what: &str) -> bool {
    let lacking = services().embedded;
    if lacking {
        skip(&format!("needs a real broker: {what}"));
    }
    lacking
}
