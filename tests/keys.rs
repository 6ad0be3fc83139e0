//! The published key formula against its golden vectors, which were made by another implementation.

use std::sync::Arc;

use oncebox::event::Record;
use oncebox::transform::{Disposition, Origin, Transformer};
use serde_json::Value;

/// A workflow from a vector's keys, over a minimal one.
fn workflow(vector: &Value) -> Arc<oncebox::config::Workflow> {
    let mut workflow = serde_json::json!({
        "id": "orders",
        "source": {"topics": ["t"]},
        "endpoint": {"url": "https://example.com/"},
    });
    let own = vector["workflow"].as_object().expect("a workflow");
    for (key, value) in own {
        match (workflow.get_mut(key).and_then(Value::as_object_mut), value.as_object()) {
            (Some(known), Some(more)) => known.extend(more.clone()),
            _ => workflow[key] = value.clone(),
        }
    }
    // JSON is YAML.
    let config = serde_json::json!({"postgres": {"url": "postgresql://localhost/x"}, "workflows": [workflow]});
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.yaml");
    std::fs::write(&path, config.to_string()).expect("written");
    let loaded = oncebox::config::load(&path).unwrap_or_else(|problems| panic!("{problems}"));
    Arc::clone(&loaded.config.workflows[0])
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(|text| text.as_bytes().to_vec())
}

#[test]
fn every_golden_vector_gives_its_keys() {
    let text = include_str!("../docs/key-vectors.json");
    let vectors: Vec<Value> = serde_json::from_str(text).expect("vectors are JSON");
    assert!(vectors.len() >= 13);
    for vector in &vectors {
        let name = vector["name"].as_str().expect("a name");
        let record = &vector["record"];
        let headers = record["headers"].as_array().into_iter().flatten();
        let record = Record {
            offset: record["offset"].as_i64().expect("an offset"),
            timestamp: None,
            key: bytes(&record["key"]),
            value: bytes(&record["value"]),
            headers: headers.map(|pair| (bytes(&pair[0]).expect("a name"), bytes(&pair[1]))).collect(),
        };
        let origin = &vector["origin"];
        let text = |key: &str| origin[key].as_str().expect("text").into();
        let origin = Origin {
            cluster: text("cluster"),
            topic: text("topic"),
            topic_id: text("topicId"),
            partition: i32::try_from(origin["partition"].as_i64().expect("a number")).expect("small"),
        };
        let transformer = Transformer::new(workflow(vector)).expect("programs compile");
        let keys: Vec<Value> = match transformer.apply(&record, &origin) {
            Disposition::Events { drafts, .. } => drafts.into_iter().map(|draft| draft.key.into()).collect(),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(Value::Array(keys), vector["keys"], "{name}");
    }
}
