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
        refuse_password(root.get("postgres").and_then(|p| p.get(name)), problems);
    }
    refuse_password(root.get("egress").and_then(|e| e.get("proxy")), problems);
    refuse_password(root.get("schemaRegistry").and_then(|r| r.get("url")), problems);
    if let Some(Content::Map(entries)) = root.get("kafka").and_then(|k| k.get("properties")).map(|p| &p.content) {
        let secret =
            |key: &str| ["password", "secret", "key.pem", "jaas", "token"].iter().any(|part| key.contains(part));
        for entry in entries.iter().filter(|e| secret(&e.key)) {
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
    refuse_password(endpoint.get("url"), problems);
    refuse_password(endpoint.get("lookup").and_then(|l| l.get("url")), problems);
    let auth = endpoint.get("auth");
    let part = |kind: &str, key: &str| auth.and_then(|a| a.get(kind)).and_then(|k| k.get(key));
    refuse_literal(part("basic", "password"), "a password", problems);
    refuse_literal(part("bearer", "token"), "a token", problems);
    refuse_literal(part("oauth2", "clientSecret"), "a client secret", problems);
    refuse_password(part("oauth2", "tokenUrl"), problems);
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
        && is_literal(&scalar.text)
    {
        // The value itself is not printed: it is the secret.
        problems.push(Problem::new(place.clone(), format!("{what} is written into the file")).allowed(ASK));
    }
}

/// Whether a text holds its secret itself: it has no reference, or one with a default.
fn is_literal(text: &str) -> bool {
    let references: Vec<&str> = text.split("${").skip(1).filter_map(|rest| rest.split('}').next()).collect();
    let has_default = |reference: &&str| {
        reference.split_once(":-").is_some_and(|(name, default)| name != "file" && !default.is_empty())
    };
    references.is_empty() || references.iter().any(has_default)
}

/// The password inside a URL, or inside a list such as `host=a password=b`.
fn refuse_password(node: Option<&Node>, problems: &mut Problems) {
    let Some(Node { place, content: Content::Scalar(scalar) }) = node else { return };
    let userinfo = scalar.text.split_once("://").and_then(|(_, rest)| {
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        authority.rsplit_once('@')?.0.split_once(':').map(|(_, password)| password)
    });
    let named = scalar.text.split_once("password=").map(|(_, rest)| rest.split(['&', ' ']).next().unwrap_or_default());
    if userinfo.into_iter().chain(named).any(|password| !password.is_empty() && is_literal(password)) {
        problems.push(
            Problem::new(place.clone(), "a password is written into the URL".to_owned())
                .allowed("the whole URL, or its password, as a reference such as ${NAME}"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_is_as_literal_as_the_thing_itself() {
        for text in ["hunter2", "${P:-hunter2}", "Bearer ${A:-abc}", "Bearer abc"] {
            assert!(is_literal(text), "{text}");
        }
        for text in ["${P}", "${P:-}", "${file:/run/secrets/p}", "Bearer ${A}"] {
            assert!(!is_literal(text), "{text}");
        }
    }
}
