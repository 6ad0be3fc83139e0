//! Credits on their way from Kafka through a real Oncebox and a proxy to a receiver, and what was found at the end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::ops::Range;

use super::books::Books;
use crate::support::lossy::Proxy;
use crate::support::process::Config;
use crate::support::wire::{self, Answer};
use crate::support::{PATIENCE, Relay, TestDatabase, Topic, eventually};

/// How many copies of a request are sent at the same time.
pub const COPIES: usize = 8;

/// In this order they end.
pub struct Delivery {
    _relay: Relay,
    pub proxy: Proxy,
    pub database: TestDatabase,
    pub topic: Topic,
}

fn credit_of(id: u32) -> (String, i64) {
    (format!("account-{}", id % 7), i64::from(1 + id % 97))
}

impl Delivery {
    pub async fn start(receiver: SocketAddr) -> Self {
        Self::start_with(receiver, "", &[]).await
    }

    /// `endpoint`: more lines of the workflow's endpoint, with what they refer to in the environment.
    pub async fn start_with(receiver: SocketAddr, endpoint: &str, environment: &[(&str, &str)]) -> Self {
        let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
        let proxy = Proxy::start(receiver).await;
        let mut config = Config::posting_to(format!("http://{}/events", proxy.address), &topic, &database);
        config.endpoint = endpoint.to_owned();
        let relay = Relay::start_in(&config, "", environment);
        Self { _relay: relay, proxy, database, topic }
    }

    pub fn send(&self, ids: Range<u32>) {
        for id in ids {
            let (account, amount) = credit_of(id);
            let value = format!(r#"{{"id":{id},"account":"{account}","amount":{amount}}}"#);
            self.topic.send_raw(None, Some(id.to_string().as_bytes()), Some(value.as_bytes()), None);
        }
        self.topic.flush();
    }

    /// Takes requests of Oncebox before the receiver has seen their keys, and sends each of them several times at once.
    /// Oncebox, which had no answer, sends them again once the proxy passes them on.
    pub async fn post_copies(&self, receiver: SocketAddr, count: usize) -> Vec<Answer> {
        let withheld = eventually("the requests are taken", PATIENCE, async || {
            let by_key: HashMap<_, _> = self
                .proxy
                .requests()
                .into_iter()
                .map(|request| (wire::header(&request, "webhook-id"), request))
                .collect();
            (by_key.len() == count).then_some(by_key)
        })
        .await;
        let mut answers = Vec::new();
        for request in withheld.into_values() {
            let copies: Vec<_> = (0..COPIES)
                .map(|_| {
                    let request = request.clone();
                    tokio::spawn(async move { wire::ask(receiver, &request).await })
                })
                .collect();
            for copy in copies {
                answers.push(copy.await.expect("a copy is answered"));
            }
        }
        answers
    }

    pub async fn settled(&self, completed: i64, dead: i64) {
        eventually("every event is settled", PATIENCE, async || {
            let done = self.database.count("select count(*) from oncebox.done where state = 'completed'").await;
            let given_up = self.database.count("select count(*) from oncebox.dead_letter").await;
            ((done, given_up) == (completed, dead)).then_some(())
        })
        .await;
    }

    pub async fn keys(&self, state: &str) -> BTreeSet<String> {
        let text = "select o.key from oncebox.outbox o
                      join oncebox.done d using (cursor, record_offset, event_index) where d.state = $1";
        self.database.query(text, &[&state]).await.iter().map(|row| row.get(0)).collect()
    }

    /// Whether each later attempt at a key had a higher fence, and there were some.
    pub fn fences_rise(&self) -> bool {
        let number = |request: &[u8], name| wire::header(request, name).and_then(|text| text.parse::<i64>().ok());
        let mut by_key: HashMap<_, BTreeMap<_, _>> = HashMap::new();
        for request in self.proxy.requests() {
            let (attempt, fence) = (number(&request, "oncebox-attempt"), number(&request, "oncebox-fence"));
            by_key.entry(wire::header(&request, "webhook-id")).or_default().insert(attempt, fence);
        }
        by_key.values().any(|fences| fences.len() > 1)
            && by_key.values().all(|fences| fences.values().is_sorted_by(|a, b| a < b))
    }

    /// Every difference between what was sent and what the receiver has.
    pub async fn differences(&self, books: &Books, ids: Range<u32>) -> Vec<String> {
        let mut expected = BTreeMap::new();
        for (account, amount) in ids.map(credit_of) {
            *expected.entry(account).or_insert(0) += amount;
        }
        let (found, mut differences) = (books.balances().await, Vec::new());
        for account in expected.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
            let (wanted, has) = (expected.get(account), found.get(account));
            if wanted != has {
                differences.push(format!("{account} has {has:?} and should have {wanted:?}"));
            }
        }
        let (sent, kept) = (self.keys("completed").await, books.keys().await);
        differences.extend(sent.symmetric_difference(&kept).map(|key| format!("{key} is on one side only")));
        differences
    }
}
