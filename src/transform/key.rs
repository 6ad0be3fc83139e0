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
use crate::event::{Fingerprint, Record, encode_components};

const VERSION: &str = "oncebox-key-1";
const READABLE_LENGTH: usize = 40;
const HASH_LENGTH: usize = 22;
/// The keys of one record's events: all but the index is already encoded.
pub struct Keys {
    readable: String,
    components: Vec<Vec<u8>>,
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
        let named: Option<Vec<Pairs>> =
            format.fields.iter().map(|field| resolve(field, record, origin, change, value)).collect();
        let fell_back = named.is_none();
        let parts = match named {
            Some(parts) if !parts.is_empty() => parts.into_iter().flatten().collect(),
            Some(_) | None => coordinates(record, origin),
        };
        let namespace = if crate::mutant!("key-without-workflow") { "" } else { &format.namespace };
        let mut components = vec![VERSION.as_bytes().to_vec(), namespace.as_bytes().to_vec()];
        if crate::mutant!("random-key") {
            components.push(rand::random::<u64>().to_be_bytes().to_vec());
        }
        for (name, value) in parts {
            if crate::mutant!("key-without-partition") && name == "partition" {
                continue;
            }
            components.push(name.into_bytes());
            components.push(value);
        }
        Self { readable: readable(origin, change), components, fell_back }
    }

    /// What tells the event of this index from every other.
    pub fn fingerprint(&self, index: i32) -> Fingerprint {
        let index = index.to_string();
        let tail: [&[u8]; 2] = [b"index", index.as_bytes()];
        Sha256::digest(encode_components(self.components.iter().map(Vec::as_slice).chain(tail))).into()
    }

    /// The key of the event with this fingerprint.
    pub fn key_of(&self, fingerprint: &Fingerprint) -> String {
        let mut hash = URL_SAFE_NO_PAD.encode(fingerprint);
        hash.truncate(HASH_LENGTH);
        format!("{}-{hash}", self.readable)
    }

    /// Namespace, names and values as the hash covers them, without the version before them and the index after them.
    pub fn components(&self) -> (&[u8], impl Iterator<Item = (&[u8], &[u8])>) {
        let pairs = self.components[2..].chunks_exact(2).map(|pair| (pair[0].as_slice(), pair[1].as_slice()));
        (&self.components[1], pairs)
    }

    /// Whether a field that the format names was missing, so that the coordinates stand in for it.
    pub fn fell_back(&self) -> bool {
        self.fell_back
    }
}

/// Names and values, in order.
type Pairs = Vec<(String, Vec<u8>)>;

fn pair(name: &str, value: impl Into<Vec<u8>>) -> (String, Vec<u8>) {
    (name.to_owned(), value.into())
}

fn coordinates(record: &Record, origin: &Origin) -> Pairs {
    vec![
        pair("cluster", &*origin.cluster),
        pair("topicId", &*origin.topic_id),
        pair("partition", origin.partition.to_string()),
        pair("offset", record.offset.to_string()),
    ]
}

/// What one placeholder contributes; nothing at all when what it names is missing.
fn resolve(
    field: &Field,
    record: &Record,
    origin: &Origin,
    change: Option<&Change<'_>>,
    value: &Decoded<'_>,
) -> Option<Pairs> {
    let one = |name: &str, value: Vec<u8>| Some(vec![pair(name, value)]);
    match field {
        Field::Database => one("database", change?.database.clone()?.into()),
        Field::Schema => one("schema", change?.schema.clone()?.into()),
        Field::Table => {
            let change = change?;
            let schema = change.schema.iter().map(|schema| pair("schema", schema.as_str()));
            let table = pair("table", change.table.clone()?);
            Some(schema.chain([table]).collect())
        }
        Field::PrimaryKey => one("primaryKey", primary_key(record)?),
        Field::ChangeVersion => {
            let change = change.filter(|change| !change.position.is_empty())?;
            let position = change.position.iter().map(|(name, value)| pair(name, value.as_str()));
            let op = pair("op", change.op.as_deref().unwrap_or_default());
            Some(position.chain([op]).collect())
        }
        Field::Key => one("key", record.key.clone()?),
        Field::Topic => one("topic", origin.topic.as_bytes().to_vec()),
        Field::Partition => one("partition", origin.partition.to_string().into()),
        Field::Offset => one("offset", record.offset.to_string().into()),
        Field::Pointer(pointer) => one(&pointer.text, pointer.read(value)?.into()),
        Field::Header(name) => {
            let (_, value) = record.headers.iter().rev().find(|(n, _)| n == name.as_bytes())?;
            one(&format!("header.{name}"), value.clone()?)
        }
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
