//! A request as people and scripts see it: as JSON, as a curl command, without what is secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::config::node::{Content, Node};
use crate::config::{Auth, Loaded, Workflow};
use crate::event::Event;
use crate::send::outgoing::Outgoing;

const HIDDEN: &str = "***";
/// Headers that carry credentials, whoever set them.
const CREDENTIALS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// One request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    pub idempotency_key: String,
    pub event_type: String,
    pub method: String,
    pub url: String,
    pub headers: serde_json::Map<String, serde_json::Value>,
    pub body: Body,
}

/// JSON byte for byte where the body is JSON, else text, else base64.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Body {
    Json(Box<RawValue>),
    Text(String),
    Base64(String),
}

/// What must not be shown of a workflow's requests.
#[derive(Debug, Default)]
pub struct Masks {
    /// Names of headers whose value a reference filled in.
    headers: Vec<String>,
    url: Option<String>,
}

impl Masks {
    pub fn of(loaded: &Loaded, workflow: &Workflow) -> Self {
        let here = format!("/workflows/{}/endpoint", workflow.index);
        let by_reference = |node: &Node| matches!(&node.content, Content::Scalar(scalar) if scalar.written.is_some());
        let headers = match loaded.tree.nearest(&format!("{here}/headers")).content {
            Content::Map(ref entries) => entries
                .iter()
                .filter(|entry| by_reference(&entry.value))
                .map(|entry| entry.key.to_lowercase())
                .collect(),
            Content::List(_) | Content::Scalar(_) => Vec::new(),
        };
        Self { headers, url: loaded.written(&format!("{here}/url")).map(str::to_owned) }
    }

    fn hides(&self, header: &str) -> bool {
        CREDENTIALS.contains(&header) || self.headers.iter().any(|name| name == header)
    }

    /// The whole URL when its path was written out; where a reference may have filled in a part of it, its host.
    fn url(&self, url: &url::Url) -> String {
        let Some(written) = &self.url else { return url.to_string() };
        let plain = without_references(written);
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let written_out = plain.split_once("://").is_some_and(|(_, rest)| {
            let tail = rest.find(['/', '?']).map_or("/", |at| &rest[at..]);
            tail == path
        });
        if written_out {
            return url.to_string();
        }
        format!("{}/{HIDDEN}", url.origin().ascii_serialization())
    }
}

/// The text with a character that no URL has in the place of each `${..}`.
fn without_references(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        out.push_str(&rest[..at]);
        out.push('\u{1}');
        rest = rest[at..].split_once('}').map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out
}

impl Shown {
    pub fn new(request: &Outgoing, event: &Event, workflow: &Workflow, masks: &Masks) -> Self {
        let mut headers = serde_json::Map::new();
        for (name, value) in request.headers() {
            let text = if masks.hides(name) { HIDDEN.to_owned() } else { String::from_utf8_lossy(value).into_owned() };
            headers.insert(name.to_owned(), text.into());
        }
        // Added when a request leaves, by what is secret then.
        if !matches!(workflow.endpoint.auth, Auth::None) {
            headers.insert("authorization".to_owned(), HIDDEN.into());
        }
        if !workflow.endpoint.signing.is_empty() {
            headers.insert("webhook-timestamp".to_owned(), "<unix seconds of the attempt>".into());
            headers.insert("webhook-signature".to_owned(), format!("v1,{HIDDEN}").into());
        }
        Self {
            idempotency_key: event.key.clone(),
            event_type: event.event_type.clone(),
            method: request.method().to_string(),
            url: masks.url(&workflow.endpoint.url),
            headers,
            body: Body::new(&event.body, &event.content_type),
        }
    }

    /// The same request for a shell. What curl sets by itself is left out.
    pub fn curl(&self) -> String {
        let mut lines = vec![format!("curl -X {} {}", self.method, quoted(&self.url))];
        for (name, value) in &self.headers {
            if !["host", "content-length"].contains(&name.as_str()) {
                lines.push(format!("  -H {}", quoted(&format!("{name}: {}", value.as_str().unwrap_or_default()))));
            }
        }
        match &self.body {
            Body::Json(raw) => lines.push(format!("  --data-raw {}", quoted(raw.get()))),
            Body::Text(text) => lines.push(format!("  --data-raw {}", quoted(text))),
            Body::Base64(encoded) => {
                lines.push("  --data-binary @-".to_owned());
                lines[0] = format!("base64 -d <<< {encoded} | {}", lines[0]);
            }
        }
        lines.join(" \\\n")
    }
}

impl Body {
    fn new(bytes: &[u8], content_type: &str) -> Self {
        let json = content_type.contains("json").then(|| serde_json::from_slice::<Box<RawValue>>(bytes).ok()).flatten();
        match (json, std::str::from_utf8(bytes)) {
            (Some(raw), _) => Self::Json(raw),
            (None, Ok(text)) if !text.contains('\0') => Self::Text(text.to_owned()),
            (None, _) => Self::Base64(STANDARD.encode(bytes)),
        }
    }
}

/// One word of a shell, whatever it holds.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(written: &str, resolved: &str) -> String {
        let masks = Masks { headers: Vec::new(), url: Some(written.to_owned()) };
        masks.url(&resolved.parse().unwrap())
    }

    #[test]
    fn what_a_reference_put_into_a_path_is_hidden() {
        assert_eq!(url("http://h:${PORT}/events", "http://h:81/events"), "http://h:81/events");
        assert_eq!(url("https://${HOST}", "https://h"), "https://h/");
        assert_eq!(url("https://h/hooks/${TOKEN}", "https://h/hooks/s3cret"), "https://h/***");
        assert_eq!(url("${URL}", "https://h:8443/s3cret?a=b"), "https://h:8443/***");
        assert_eq!(url("${BASE}/events", "https://h/s3cret/events"), "https://h/***");
        assert_eq!(url("https://${HOST}/events", "https://h/s3cret/events"), "https://h/***", "a path within a host");
        assert_eq!(url("https://h/e?key=${KEY}", "https://h/e?key=s3cret"), "https://h/***");
    }

    #[test]
    fn a_shell_gets_back_what_was_quoted() {
        let text = "it's $HOME `x` \"y\" \\ \n end";
        let command = format!("printf %s {}", quoted(text));
        let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
    }
}
