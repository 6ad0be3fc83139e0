//! Where no real broker can be had (`KAFKA_BROKERS=embedded`): librdkafka's mock cluster, in the tests' own process.
//!
//! It forgets nothing while it runs, but knows no transactions, no retention and no operator's requests. Tests that need
//! those say so and count as skipped.

use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

use super::{services, skip};

pub const NAME: &str = "embedded";

pub type Cluster = MockCluster<'static, DefaultProducerContext>;
type Job = Box<dyn FnOnce(&Cluster) + Send>;

/// One mock broker, on a thread of its own. It ends with its owner. A test that makes brokers refuse or go has one to itself.
pub struct MockBroker {
    pub address: String,
    jobs: SyncSender<Job>,
}

impl MockBroker {
    pub fn start() -> Self {
        let (started, address) = sync_channel(1);
        let (jobs, asked) = sync_channel::<Job>(0);
        std::thread::spawn(move || {
            let cluster = MockCluster::new(1).expect("librdkafka's mock cluster");
            started.send(cluster.bootstrap_servers()).expect("somebody waits");
            for job in asked {
                job(&cluster);
            }
        });
        Self { address: address.recv().expect("the cluster starts"), jobs }
    }

    /// Does this with the cluster, on its thread.
    pub fn with(&self, work: impl FnOnce(&Cluster) + Send + 'static) {
        let (done, waits) = sync_channel(1);
        let job: Job = Box::new(move |cluster| {
            work(cluster);
            let _ = done.send(());
        });
        self.jobs.send(job).expect("the cluster runs");
        waits.recv().expect("it is done");
    }

    pub fn create_topic(&self, name: &str, partitions: i32) {
        let name = name.to_owned();
        self.with(move |cluster| cluster.create_topic(&name, partitions, 1).expect("a topic"));
    }
}

/// Started once, for as long as the tests run.
fn embedded() -> &'static MockBroker {
    static EMBEDDED: OnceLock<MockBroker> = OnceLock::new();
    EMBEDDED.get_or_init(MockBroker::start)
}

pub fn brokers() -> String {
    embedded().address.clone()
}

pub fn create_topic(name: &str, partitions: i32) {
    embedded().create_topic(name, partitions);
}

/// Whether a test must give up here, because only a real broker does what it is about.
pub fn lacks(what: &str) -> bool {
    let lacking = services().embedded;
    if lacking {
        skip(&format!("needs a real broker: {what}"));
    }
    lacking
}
