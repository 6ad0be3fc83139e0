//! The idempotency key: `{readable}-{hash}`, made from the source's own identifiers so that every copy of an event
//! carries the same one. The formula is published in docs/idempotency-keys.md with golden vectors.
//!
//! The hash covers a list of names and values, each preceded by its length, so that two lists never encode alike.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::Origin;
use super::debezium::{self, Change};
use super::decode::{Decoded, minified};
use super::key_format::{Field, Format};
use crate::event::{Fingerprint, Record, decode_components, encode_component};

const VERSION: &str = "oncebox-key-1";
const READABLE_LENGTH: usize = 40;
const HASH_LENGTH: usize = 22;
/// The keys of one record's events: all but the index is already encoded.
pub struct Keys {
    readable: String,
    encoded: Vec<u8>,
    fell_back: bool,
}

impl Keys {
    pub fn of(
        format: &Format,
        record: &Record,
        origin: &Origin,
        change: Option<&Change<'_>>,
        value: &Decoded<'_>,
    ) -> Self {
        let namespace = if crate::mutant!("key-without-workflow") { "" } else { &format.namespace };
        let mut parts = Parts { encoded: Vec::with_capacity(256) };
        parts.add(VERSION.as_bytes());
        parts.add(namespace.as_bytes());
        if crate::mutant!("random-key") {
            parts.add(&rand::random::<u64>().to_be_bytes());
        }
        let begin = parts.encoded.len();
        let named = format.fields.iter().map(|field| parts.resolve(field, record, origin, change, value));
        let fell_back = named.collect::<Option<()>>().is_none();
        if fell_back {
            parts.encoded.truncate(begin);
        }
        if parts.encoded.len() == begin {
            parts.coordinates(record, origin);
        }
        Self { readable: readable(origin, change), encoded: parts.encoded, fell_back }
    }

    /// What tells the event of this index from every other.
    pub fn fingerprint(&self, index: i32) -> Fingerprint {
        let mut tail = Parts { encoded: Vec::with_capacity(32) };
        tail.number("index", index.into());
        Sha256::new().chain_update(&self.encoded).chain_update(&tail.encoded).finalize().into()
    }

    /// The key of the event with this fingerprint.
    pub fn key_of(&self, fingerprint: &Fingerprint) -> String {
        let mut key = String::with_capacity(self.readable.len() + 44);
        key.push_str(&self.readable);
        key.push('-');
        let length = key.len() + HASH_LENGTH;
        URL_SAFE_NO_PAD.encode_string(fingerprint, &mut key);
        key.truncate(length);
        key
    }

    /// Namespace, names and values as the hash covers them, without the version before them and the index after them.
    pub fn components(&self) -> (&[u8], impl Iterator<Item = (&[u8], &[u8])>) {
        let components = decode_components(&self.encoded);
        let mut rest = components.into_iter().skip(1);
        let namespace = rest.next().expect("there always is one");
        (namespace, std::iter::from_fn(move || rest.next().zip(rest.next())))
    }

    /// Whether a field that the format names was missing, so that the coordinates stand in for it.
    pub fn fell_back(&self) -> bool {
        self.fell_back
    }
}

/// What the hash covers, as it grows: names and values.
struct Parts {
    encoded: Vec<u8>,
}

impl Parts {
    fn add(&mut self, component: &[u8]) {
        encode_component(&mut self.encoded, component);
    }

    fn pair(&mut self, name: &str, value: &[u8]) {
        if crate::mutant!("key-without-partition") && name == "partition" {
            return;
        }
        self.add(name.as_bytes());
        self.add(value);
    }

    fn number(&mut self, name: &str, value: i64) {
        self.pair(name, value.to_string().as_bytes());
    }

    fn coordinates(&mut self, record: &Record, origin: &Origin) {
        self.pair("cluster", origin.cluster.as_bytes());
        self.pair("topicId", origin.topic_id.as_bytes());
        self.number("partition", origin.partition.into());
        self.number("offset", record.offset);
    }

    /// Adds what one placeholder contributes; nothing at all when what it names is missing.
    fn resolve(
        &mut self,
        field: &Field,
        record: &Record,
        origin: &Origin,
        change: Option<&Change<'_>>,
        value: &Decoded<'_>,
    ) -> Option<()> {
        match field {
            Field::Database => self.pair("database", change?.database.as_deref()?.as_bytes()),
            Field::Schema => self.pair("schema", change?.schema.as_deref()?.as_bytes()),
            Field::Table => {
                let change = change?;
                let table = change.table.as_deref()?;
                if let Some(schema) = &change.schema {
                    self.pair("schema", schema.as_bytes());
                }
                self.pair("table", table.as_bytes());
            }
            Field::PrimaryKey => self.pair("primaryKey", &primary_key(record)?),
            Field::ChangeVersion => {
                let change = change.filter(|change| !change.position.is_empty())?;
                for (name, value) in &change.position {
                    self.pair(name, value.as_bytes());
                }
                self.pair("op", change.op.as_deref().unwrap_or_default().as_bytes());
            }
            Field::Key => self.pair("key", record.key.as_deref()?),
            Field::Topic => self.pair("topic", origin.topic.as_bytes()),
            Field::Partition => self.number("partition", origin.partition.into()),
            Field::Offset => self.number("offset", record.offset),
            Field::Pointer(pointer) => self.pair(&pointer.text, pointer.read(value)?.as_bytes()),
            Field::Header(name) => {
                let (_, value) = record.headers.iter().rev().find(|(n, _)| n == name.as_bytes())?;
                self.pair(&format!("header.{name}"), value.as_deref()?);
            }
        }
        Some(())
    }
}

/// The record's key without its wrapper and without white space; bytes as they are when it is not JSON.
fn primary_key(record: &Record) -> Option<Vec<u8>> {
    let bytes = record.key.as_deref()?;
    let json =
        std::str::from_utf8(bytes).ok().filter(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok());
    match json.map(debezium::unwrapped) {
        Some("null") => None,
        Some(json) => Some(minified(json).into_bytes()),
        None => Some(bytes.to_vec()),
    }
}

fn readable(origin: &Origin, change: Option<&Change<'_>>) -> String {
    let clean = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
    };
    let names = change.and_then(|c| Some((c.database.as_deref()?, c.table.as_deref()?)));
    let mut text = match names {
        Some((database, table)) => format!("{}-{}", clean(database), clean(table)),
        None => clean(&origin.topic),
    };
    text.truncate(READABLE_LENGTH);
    text
}
