//! Enters: an event and a uniqueness policy. Leaves: the key under which two events are the same (SPEC section 6).
//!
//! SHA-256 of the canonical JSON of the dimensions that the policy names. The type always counts.

use sha2::{Digest, Sha256};

use super::canonical::{Canonical, NotCanonical};
use crate::config::UniquePolicy;
use crate::event::Fingerprint;

/// What events are compared by.
pub struct Dimensions<'a> {
    pub event_type: &'a str,
    /// The workflow.
    pub queue: &'a str,
    /// The data, as JSON.
    pub args: &'a str,
    pub meta: Meta<'a>,
}

/// What stands beside the data.
#[derive(Clone, Copy)]
pub enum Meta<'a> {
    /// A record's headers.
    Headers(&'a [(Vec<u8>, Option<Vec<u8>>)]),
    /// A caller's, as JSON.
    Json(&'a str),
}

/// Why an event has no uniqueness key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoKey {
    #[error("unique: {0}")]
    NotCanonical(#[from] NotCanonical),
    #[error("unique: args_keys has `{0}`, which the data lacks")]
    NoArgument(String),
    #[error("unique: meta_keys has `{0}`, which {1}")]
    NoMeta(String, &'static str),
}

pub fn fingerprint(policy: &UniquePolicy, event: &Dimensions<'_>) -> Result<Fingerprint, NoKey> {
    Ok(Sha256::digest(canonical(policy, event)?).into())
}

/// What the key is the hash of.
pub fn canonical(policy: &UniquePolicy, event: &Dimensions<'_>) -> Result<Vec<u8>, NoKey> {
    let mut dimensions = vec![("type".to_owned(), Canonical::text(event.event_type))];
    if policy.queue {
        dimensions.push(("queue".to_owned(), Canonical::text(event.queue)));
    }
    if policy.args {
        let args = Canonical::of(event.args)?;
        dimensions.push((
            "args".to_owned(),
            match &policy.args_keys {
                None => args,
                Some(names) => {
                    selected(names, |name| args.get(name).cloned().ok_or_else(|| NoKey::NoArgument(name.to_owned())))?
                }
            },
        ));
    }
    if policy.meta {
        let meta = selected(&policy.meta_keys, |name| meta(event.meta, name))?;
        dimensions.push(("meta".to_owned(), meta));
    }
    let mut out = Vec::with_capacity(128);
    Canonical::map(dimensions)?.write(&mut out);
    Ok(out)
}

fn selected(names: &[String], value: impl Fn(&str) -> Result<Canonical, NoKey>) -> Result<Canonical, NoKey> {
    let entries = names.iter().map(|name| {
        let Canonical::Text(normal) = Canonical::text(name) else { unreachable!("a text is a text") };
        Ok((normal, value(name)?))
    });
    Ok(Canonical::map(entries.collect::<Result<_, NoKey>>()?)?)
}

fn meta(meta: Meta<'_>, name: &str) -> Result<Canonical, NoKey> {
    let no = |why| Err(NoKey::NoMeta(name.to_owned(), why));
    match meta {
        Meta::Json(text) => match Canonical::of(text)?.get(name) {
            Some(value) => Ok(value.clone()),
            None => no("`meta` lacks"),
        },
        Meta::Headers(headers) => {
            let mut found = headers.iter().filter(|(known, _)| known == name.as_bytes());
            match (found.next(), found.next()) {
                (None, _) => no("the record lacks"),
                (Some(_), Some(_)) => no("the record has twice"),
                (Some((_, None)), None) => Ok(Canonical::Plain("null".to_owned())),
                (Some((_, Some(value))), None) => match std::str::from_utf8(value) {
                    Ok(text) => Ok(Canonical::text(text)),
                    Err(_) => no("is not text"),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(json: &str) -> UniquePolicy {
        UniquePolicy::check(&serde_json::from_str(json).unwrap()).unwrap()
    }

    fn key(json: &str, args: &str, meta: Meta<'_>) -> Result<String, NoKey> {
        let event = Dimensions { event_type: "email.send", queue: "mail", args, meta };
        canonical(&policy(json), &event).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn every_dimension_that_is_named_counts_and_no_other() {
        let headers = [(b"tenant".to_vec(), Some(b"acme".to_vec())), (b"trace".to_vec(), Some(b"1".to_vec()))];
        let meta = Meta::Headers(&headers);
        let args = r#"{"to": 7, "body": "hello"}"#;
        for (json, wanted) in [
            ("{}", r#"{"type":"email.send"}"#),
            (r#"{"keys":["queue"]}"#, r#"{"queue":"mail","type":"email.send"}"#),
            (r#"{"keys":["args"]}"#, r#"{"args":{"body":"hello","to":7},"type":"email.send"}"#),
            (r#"{"keys":["args"],"args_keys":["to"]}"#, r#"{"args":{"to":7},"type":"email.send"}"#),
            (r#"{"keys":["meta"],"meta_keys":["tenant"]}"#, r#"{"meta":{"tenant":"acme"},"type":"email.send"}"#),
        ] {
            assert_eq!(key(json, args, meta).as_deref(), Ok(wanted), "{json}");
        }
    }

    #[test]
    fn what_is_named_must_be_there() {
        let twice = [(b"tenant".to_vec(), Some(b"a".to_vec())), (b"tenant".to_vec(), Some(b"b".to_vec()))];
        let binary = [(b"tenant".to_vec(), Some(vec![0xff]))];
        let by_tenant = r#"{"keys":["meta"],"meta_keys":["tenant"]}"#;
        for meta in [Meta::Headers(&[]), Meta::Headers(&twice), Meta::Headers(&binary), Meta::Json("{}")] {
            assert!(matches!(key(by_tenant, "{}", meta), Err(NoKey::NoMeta(..))));
        }
        for args in ["{}", "[1]", "7", "null"] {
            let found = key(r#"{"keys":["args"],"args_keys":["to"]}"#, args, Meta::Json("{}"));
            assert_eq!(found, Err(NoKey::NoArgument("to".to_owned())), "{args}");
        }
        assert!(matches!(
            key(r#"{"keys":["args"]}"#, r#"{"a":1,"a":2}"#, Meta::Json("{}")),
            Err(NoKey::NotCanonical(_))
        ));
    }
}
