//! One attempt at an endpoint, through the library: for what needs no Kafka and no Postgres.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use oncebox::config::{Secret, Workflow};
use oncebox::event::{CursorId, Event, Place, SourcePosition};
use oncebox::send::connect::Target;
use oncebox::send::egress::Rules;
use oncebox::send::request::Template;
use oncebox::send::{self, Attempt};

/// A workflow with these lines under `endpoint`.
pub fn workflow(url: &str, endpoint: &str) -> Arc<Workflow> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.yaml");
    let yaml = format!(
        "postgres: {{url: \"postgresql://localhost/x\"}}\nworkflows:\n  - id: orders\n    source: {{topics: [t]}}\n    endpoint:\n      url: {url}\n      {endpoint}\n"
    );
    std::fs::write(&path, yaml).expect("written");
    let loaded = oncebox::config::load(&path).unwrap_or_else(|problems| panic!("{problems}"));
    Arc::clone(&loaded.config.workflows[0])
}

pub fn rules(allow: &[&str]) -> Rules {
    Rules::new(allow.iter().map(|net| net.parse().expect("a network")).collect())
}

pub fn target(workflow: &Workflow) -> Target {
    Target::new(workflow, &rules(&["127.0.0.0/8"])).expect("a target")
}

pub fn through(workflow: &Workflow, allow: &[&str], proxy: &str) -> Target {
    Target::new(workflow, &rules(allow).through(Some(Secret::new(proxy)))).expect("a target")
}

/// Makes one attempt, within five seconds.
pub async fn attempt(target: &Target, workflow: &Workflow) -> Attempt {
    let event = Event {
        place: Place { cursor: CursorId(1), offset: 1, index: 0, generation: 0 },
        day: "2026-01-01".parse().expect("a day"),
        source: SourcePosition { topic: "t".into(), partition: 0, offset: 1 },
        key: super::unique("key"),
        event_type: "t".to_owned(),
        content_type: "application/json".to_owned(),
        traceparent: None,
        lane: None,
        record_at: None,
        stored_at: 0,
        body: Bytes::from_static(b"{\"id\":1}"),
    };
    let request = Template::new(workflow).request(&event, 1, 1);
    let began = Instant::now();
    send::attempt(target, None, request, began, began + Duration::from_secs(5)).await
}
