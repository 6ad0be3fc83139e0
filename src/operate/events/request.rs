//! Enters: a stored event, and its workflow as it is configured. Leaves: the request that is made of it, as far as that is certain and may
//! be shown.
//!
//! Nothing that a reference filled in gets out: the URL stays as it was written, and such a header is masked, as is what proves the sender.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::Shown;
use crate::config::{Auth, Compression, IdempotencyKey, Method, Workflow};

const HIDDEN: &str = "***";
/// What names of headers hold that carry credentials, whoever set them.
const CREDENTIALS: [&str; 6] = ["authorization", "cookie", "key", "token", "secret", "password"];

/// The request that is made of an event, as the configuration is now. Each request adds `oncebox-attempt` and `oncebox-fence`, the digest of
/// its body, and the headers that HTTP itself needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = EventRequest)]
pub struct Request {
    pub method: String,
    /// As written: references are not resolved.
    pub url: String,
    /// By name; *** stands for what is secret.
    pub headers: BTreeMap<String, String>,
}

impl Request {
    /// Nothing when what was stored of the event is past its retention.
    pub fn of(workflow: &Workflow, event: &Shown) -> Option<Self> {
        let (key, content_type) = (event.key.as_ref()?, event.content_type.as_ref()?);
        let document: Value = serde_json::from_str(&workflow.document).unwrap_or_default();
        let mut headers = configured(workflow, &document);
        let IdempotencyKey { header, quoted, .. } = &workflow.delivery.key;
        let source = format!("{}/{}/{}", event.topic, event.partition, event.offset);
        for (name, value) in [
            (header.to_lowercase().as_str(), if *quoted { format!("\"{key}\"") } else { key.clone() }),
            ("webhook-id", key.clone()),
            ("oncebox-workflow", event.workflow.clone()),
            ("oncebox-event", event.id.clone()),
            ("oncebox-source", source),
            ("content-type", content_type.clone()),
        ] {
            headers.insert(name.to_owned(), value);
        }
        if let Some(traceparent) = &event.traceparent {
            headers.insert("traceparent".to_owned(), traceparent.clone());
        }
        match workflow.endpoint.compression {
            Compression::None => {}
            Compression::Gzip => drop(headers.insert("content-encoding".to_owned(), "gzip".to_owned())),
        }
        if !matches!(workflow.endpoint.auth, Auth::None) {
            headers.insert("authorization".to_owned(), HIDDEN.to_owned());
        }
        if !workflow.endpoint.signing.is_empty() {
            headers.insert("webhook-timestamp".to_owned(), "<unix seconds of the attempt>".to_owned());
            headers.insert("webhook-signature".to_owned(), format!("v1,{HIDDEN}"));
        }
        let method = match workflow.endpoint.method {
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
        };
        let url = document.pointer("/endpoint/url").and_then(Value::as_str).unwrap_or_default();
        Some(Self { method: method.to_owned(), url: url.to_owned(), headers })
    }
}

/// The headers that the configuration adds: their values where they were written out.
fn configured(workflow: &Workflow, document: &Value) -> BTreeMap<String, String> {
    let written = document.pointer("/endpoint/headers").and_then(Value::as_object);
    let is_written_out = |name: &str| {
        let mut values = written.into_iter().flatten().filter(|(one, _)| one.eq_ignore_ascii_case(name)).peekable();
        values.peek().is_some() && values.all(|(_, value)| !value.as_str().is_some_and(|text| text.contains("${")))
    };
    let shown = |(name, value): &(String, crate::config::Secret)| {
        let is_plain = is_written_out(name) && !CREDENTIALS.iter().any(|part| name.to_lowercase().contains(part));
        (name.clone(), if is_plain { value.expose().to_owned() } else { HIDDEN.to_owned() })
    };
    workflow.endpoint.headers.iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample::loaded;

    fn event() -> Shown {
        Shown {
            id: "0k3m7pqr2s4tv-1042-0".to_owned(),
            workflow: "orders".to_owned(),
            state: "retryable".to_owned(),
            held: None,
            in_doubt: false,
            sends: 1,
            key: Some("orders-abc".to_owned()),
            event_type: Some("OrderChanged".to_owned()),
            content_type: Some("application/json".to_owned()),
            traceparent: None,
            topic: "orders".to_owned(),
            partition: 3,
            offset: 1042,
            created_at: None,
            due: None,
            first_attempt_at: None,
            ended_at: None,
            status: None,
            dead_letter: None,
            cancel_requested: false,
            attempts: Vec::new(),
            request: None,
            body_bytes: None,
            body: None,
        }
    }

    #[test]
    fn a_request_shows_what_was_written_out_and_masks_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "s3cret").unwrap();
        let reference = format!("${{file:{}}}", file.display());
        let loaded = loaded(&format!(
            "    endpoint:
      url: \"https://erp.example.com/{reference}\"
      method: PUT
      headers: {{X-Plain: seen, X-Given: \"a {reference}\"}}
      auth: {{bearer: {{token: \"{reference}\"}}}}
"
        ));
        let request = Request::of(&loaded.config.workflows[0], &event()).expect("a request");
        assert_eq!((request.method.as_str(), &request.url), ("PUT", &format!("https://erp.example.com/{reference}")));
        let header = |name: &str| request.headers.get(name).map(String::as_str);
        assert_eq!((header("x-plain"), header("x-given")), (Some("seen"), Some("***")));
        assert_eq!((header("authorization"), header("traceparent")), (Some("***"), None));
        assert_eq!((header("idempotency-key"), header("webhook-id")), (Some("\"orders-abc\""), Some("orders-abc")));
        assert_eq!(header("oncebox-source"), Some("orders/3/1042"));
        assert_eq!(header("content-type"), Some("application/json"));
    }

    #[test]
    fn there_is_no_request_of_what_is_past_its_retention() {
        let loaded = loaded("");
        assert_eq!(Request::of(&loaded.config.workflows[0], &Shown { key: None, ..event() }), None);
    }
}
