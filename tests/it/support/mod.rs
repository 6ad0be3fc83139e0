//! What the tests stand on: a real Kafka, a real Postgres, real `oncebox` processes and a receiver that keeps a log.
//!
//! Services are shared by all tests; each test has its own schema, topic, group and receiver.

pub mod api;
pub mod attempt;
pub mod broker;
pub mod cluster;
pub mod embedded;
pub mod files;
pub mod gate;
pub mod kafka;
pub mod lossy;
pub mod postgres;
pub mod process;
mod raw;
pub mod receiver;
pub mod rights;
pub mod servers;
pub mod tls;
pub mod tools;
pub mod wire;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub use kafka::Topic;
pub use postgres::TestDatabase;
pub use process::Relay;
pub use receiver::TestReceiver;

/// Where the services are: from the environment, or as `make up` left it.
pub struct Services {
    pub brokers: String,
    pub database_url: String,
    /// Kafka is librdkafka's mock cluster.
    pub embedded: bool,
}

pub fn services() -> &'static Services {
    static SERVICES: OnceLock<Services> = OnceLock::new();
    SERVICES.get_or_init(|| {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/target/dev/env");
        let written = std::fs::read_to_string(file).unwrap_or_default();
        let find = |name: &str| {
            let line = format!("export {name}=");
            let written = written.lines().find_map(|l| l.strip_prefix(&line).map(str::to_owned));
            std::env::var(name).ok().filter(|v| !v.is_empty()).or(written)
        };
        let missing = "no services: run `make up`, or set KAFKA_BROKERS and DATABASE_URL";
        let (brokers, database_url) = (find("KAFKA_BROKERS").expect(missing), find("DATABASE_URL").expect(missing));
        let embedded = brokers == embedded::NAME;
        Services { brokers: if embedded { embedded::brokers() } else { brokers }, database_url, embedded }
    })
}

/// A name that no other test, and no earlier run, has.
pub fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_micros();
    format!("{prefix}_{now}_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Waits until `check` gives a value; panics with what it waited for.
pub async fn eventually<T>(what: &str, limit: Duration, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Says that this test could not run here: `make test` shows and counts these.
pub fn skip(why: &str) {
    use std::io::Write;
    // The harness names a test's thread after the test.
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/target/skipped.log");
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    // One write: two tests may skip at the same moment.
    let line = format!("skipped: {test}: {why}\n");
    let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
}

pub const PATIENCE: Duration = Duration::from_secs(60);
