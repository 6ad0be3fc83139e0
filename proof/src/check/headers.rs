//! S3: a request is the line and the headers that were promised, each once, and nothing stands in them that does not belong there.
//!
//! The promise is what the README says that a receiver gets. An event's bytes have their slots there: its body, its key, its source.
//! In a path or in any other header they would be somebody's data telling the endpoint what to do.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Case, Report};
use crate::evidence::Received;

/// Where every workflow of a run posts to.
const LINE: &str = "POST /events HTTP/1.1";
/// What is promised, what HTTP asks for (`host`, `content-length`), and what each workflow of a run is configured with
/// (`x-secret`, `x-turn`). Sorted.
const PROMISED: [&str; 15] = [
    "content-digest",
    "content-length",
    "content-type",
    "host",
    "idempotency-key",
    "oncebox-attempt",
    "oncebox-event",
    "oncebox-fence",
    "oncebox-source",
    "oncebox-workflow",
    "traceparent",
    "user-agent",
    "webhook-id",
    "x-secret",
    "x-turn",
];
const OF_SIGNED: [&str; 2] = ["webhook-signature", "webhook-timestamp"];

pub fn check(case: &Case, report: &mut Report) {
    let unsigned = PROMISED.to_vec();
    let mut signed = [PROMISED.as_slice(), OF_SIGNED.as_slice()].concat();
    signed.sort_unstable();
    for request in &case.received {
        // Evidence from before heads were kept has none.
        let Some(head) = &request.head else { continue };
        let is_signed = case.flow(&request.workflow).is_some_and(|flow| flow.signed);
        let wrong = wrong(request, head, if is_signed { &signed } else { &unsigned });
        report.expect("S3", wrong.is_empty(), || {
            format!("attempt {} of {}: {}", request.attempt, request.key, wrong.join(", "))
        });
    }
}

/// What stands in a head and should not, or should and does not.
fn wrong(request: &Received, head: &str, promised: &[&str]) -> Vec<String> {
    let mut lines = head.lines();
    let line = lines.next().unwrap_or_default();
    let headers: Vec<(&str, &str)> = lines.map(|line| line.split_once(": ").unwrap_or((line, ""))).collect();
    let mut names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    let mut wrong = Vec::new();
    if line != LINE {
        wrong.push(format!("it was sent as `{line}`"));
    }
    if names != promised {
        wrong.push(format!("its headers are {names:?}"));
    }
    for (name, value) in headers {
        if !fits(request, name, value) {
            wrong.push(format!("`{name}` is `{value}`"));
        }
    }
    wrong
}

fn fits(request: &Received, name: &str, value: &str) -> bool {
    match name {
        "content-digest" => value == content_digest(&request.digest),
        "content-length" | "x-turn" => is_number(value),
        "content-type" => value == "application/json",
        "host" => value.strip_prefix("127.0.0.1:").is_some_and(is_number),
        "idempotency-key" => value == format!("\"{}\"", request.key),
        "traceparent" => is_trace(value),
        "user-agent" => value.strip_prefix("oncebox/").is_some_and(is_version),
        "webhook-id" => value == request.key,
        // The evidence has only the names of the others.
        _ => value.is_empty(),
    }
}

/// A SHA-256 in hexadecimal, as `content-digest` writes it.
pub fn content_digest(hex: &str) -> String {
    let byte = |at: usize| u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok();
    let bytes: Vec<u8> = (0..hex.len() / 2).filter_map(byte).collect();
    format!("sha-256=:{}:", STANDARD.encode(bytes))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
}

fn is_version(text: &str) -> bool {
    text.split('.').all(is_number)
}

/// Version, trace, parent and flags, in the lengths of W3C Trace Context.
fn is_trace(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let is_hex = |part: &&str| part.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
    parts.iter().map(|part| part.len()).eq([2_usize, 32, 16, 2]) && parts.iter().all(is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_as_its_standard_says() {
        let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(content_digest(nothing), "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:");
    }
}
