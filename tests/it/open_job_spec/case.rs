//! One workflow with a policy, its endpoint, and somebody who gives it events over HTTP.

use std::time::Duration;

use oncebox::receiver::Answer;
use serde_json::{Value, json};

use crate::support::process::{Config, migrated, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

pub struct Case {
    pub config: Config,
    pub topic: Topic,
    pub database: TestDatabase,
    pub receiver: TestReceiver,
    pub relay: Relay,
}

impl Case {
    /// A workflow with this policy, whose endpoint does as its events' `answer` says: a status, or `hang`.
    pub async fn with(policy: &str) -> Self {
        Self::start(policy, false).await
    }

    /// The same, paused before it sends anything.
    pub async fn paused(policy: &str) -> Self {
        Self::start(policy, true).await
    }

    async fn start(policy: &str, is_paused: bool) -> Self {
        let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
        let receiver = TestReceiver::deciding(|seen| {
            let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
            match &body["data"]["answer"] {
                Value::Number(status) => {
                    Answer::status(u16::try_from(status.as_u64().expect("small")).expect("a status"))
                }
                Value::String(_) => Answer::After(Duration::from_secs(2), Box::new(Answer::Process)),
                _ => Answer::Process,
            }
        })
        .await;
        let mut config = Config::new(&topic, &database, &receiver);
        (config.timeout, config.lease) = ("5s", "8s");
        config.delivery = "retries: {backoff: [1h], jitter: 0}".to_owned();
        if !policy.is_empty() {
            config.delivery.push_str(&format!("\n      unique: {policy}"));
        }
        if is_paused {
            migrated(&database);
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("oncebox.yaml");
            std::fs::write(&path, config.yaml(1)).expect("the configuration is written");
            let output = oncebox(&["pause", "orders"], &path);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let relay = Relay::start(&config);
        relay.ready().await;
        Self { config, topic, database, receiver, relay }
    }

    pub async fn resume(&self) {
        let (status, _) = self.relay.call("POST", "/v1/workflows/orders/resume", None, Some(json!({}))).await;
        assert_eq!(status, 200);
    }

    pub async fn submit(&self, event: Value) -> (u16, Value) {
        self.relay.call("POST", "/v1/workflows/orders/events", None, Some(event)).await
    }

    /// Submits one that must be taken; answers its id.
    pub async fn stored(&self, event: Value) -> String {
        let (status, body) = self.submit(event).await;
        assert_eq!(status, 201, "{body}");
        body["id"].as_str().expect("an id").to_owned()
    }

    pub async fn state(&self, id: &str) -> String {
        self.relay.ask(&format!("/v1/events/{id}")).await["state"].as_str().expect("a state").to_owned()
    }

    pub async fn becomes(&self, id: &str, wanted: &str) {
        becomes(&self.relay, id, wanted).await;
    }
}

pub async fn becomes(relay: &Relay, id: &str, wanted: &str) {
    let check = async || (relay.ask(&format!("/v1/events/{id}")).await["state"] == wanted).then_some(());
    eventually(&format!("{id} is {wanted}"), PATIENCE, check).await;
}
