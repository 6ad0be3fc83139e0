//! Finds secrets that were written into the YAML itself instead of being referenced by `${..}`.
//!
//! Runs before substitution, on what was written.

use super::node::{Content, Node};
use super::problem::{Problem, Problems};

const ASK: &str = "a reference such as ${NAME} or ${file:/run/secrets/name}";

pub fn literal_secrets(root: &Node, problems: &mut Problems) {
    for token in root.get("admin").and_then(|a| a.get("tokens")).map(Node::items).unwrap_or_default() {
        refuse_literal(token.get("token"), "a token", problems);
    }
    for name in ["url", "directUrl"] {
        refuse_userinfo(root.get("postgres").and_then(|p| p.get(name)), problems);
    }
    refuse_userinfo(root.get("egress").and_then(|e| e.get("proxy")), problems);
    refuse_userinfo(root.get("schemaRegistry").and_then(|r| r.get("url")), problems);
    if let Some(Content::Map(entries)) = root.get("kafka").and_then(|k| k.get("properties")).map(|p| &p.content) {
        for entry in entries.iter().filter(|e| e.key.contains("password") || e.key.contains("secret")) {
            refuse_literal(Some(&entry.value), "a password", problems);
        }
    }
    let workflows = root.get("workflows").map(Node::items).unwrap_or_default();
    for workflow in workflows.iter().chain(root.get("defaults")) {
        if let Some(endpoint) = workflow.get("endpoint") {
            endpoint_secrets(endpoint, problems);
        }
    }
}

fn endpoint_secrets(endpoint: &Node, problems: &mut Problems) {
    refuse_userinfo(endpoint.get("url"), problems);
    refuse_userinfo(endpoint.get("lookup").and_then(|l| l.get("url")), problems);
    let auth = endpoint.get("auth");
    let part = |kind: &str, key: &str| auth.and_then(|a| a.get(kind)).and_then(|k| k.get(key));
    refuse_literal(part("basic", "password"), "a password", problems);
    refuse_literal(part("bearer", "token"), "a token", problems);
    refuse_literal(part("oauth2", "clientSecret"), "a client secret", problems);
    refuse_userinfo(part("oauth2", "tokenUrl"), problems);
    for secret in endpoint.get("signing").and_then(|s| s.get("secrets")).map(Node::items).unwrap_or_default() {
        refuse_literal(Some(secret), "a signing secret", problems);
    }
    if let Some(Content::Map(headers)) = endpoint.get("headers").map(|h| &h.content) {
        for entry in headers {
            if ["authorization", "cookie", "proxy-authorization"].contains(&entry.key.to_lowercase().as_str()) {
                refuse_literal(Some(&entry.value), "a credential", problems);
            }
        }
    }
}

fn refuse_literal(node: Option<&Node>, what: &str, problems: &mut Problems) {
    if let Some(Node { place, content: Content::Scalar(scalar) }) = node
        && !scalar.text.is_empty()
        && !scalar.text.contains("${")
    {
        // The value itself is not printed: it is the secret.
        problems.push(Problem::new(place.clone(), format!("{what} is written into the file")).allowed(ASK));
    }
}

fn refuse_userinfo(node: Option<&Node>, problems: &mut Problems) {
    if let Some(Node { place, content: Content::Scalar(scalar) }) = node
        && let Some((_, rest)) = scalar.text.split_once("://")
        && let Some((userinfo, _)) = rest.split(['/', '?']).next().unwrap_or_default().rsplit_once('@')
        && let Some((_, password)) = userinfo.split_once(':')
        && !password.contains("${")
    {
        problems.push(
            Problem::new(place.clone(), "a password is written into the URL".to_owned())
                .allowed("the whole URL, or its password, as a reference such as ${NAME}"),
        );
    }
}
