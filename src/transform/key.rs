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
use crate::config::{Deduplication, Format as SourceFormat, Workflow};
use crate::event::{Fingerprint, Record, encode_components};

const VERSION: &str = "oncebox-key-1";
const READABLE_LENGTH: usize = 40;
const HASH_LENGTH: usize = 22;
const DEBEZIUM_DEFAULT: &str = "{database}:{table}:{primaryKey}:{changeVersion}";

/// One placeholder of `idempotencyKey.format`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    Database,
    Schema,
    Table,
    PrimaryKey,
    ChangeVersion,
    Key,
    Topic,
    Partition,
    Offset,
    Pointer(String),
    Header(String),
}

/// A parsed `idempotencyKey.format`; no fields means the Kafka coordinates.
#[derive(Debug, Clone)]
pub struct Format {
    namespace: String,
    fields: Vec<Field>,
}

const ALLOWED: &str = "{database}, {schema}, {table}, {primaryKey}, {changeVersion} (debezium), {key}, {topic}, \
                       {partition}, {offset}, {header.NAME}, {/json/pointer}";

impl Format {
    pub fn of(workflow: &Workflow) -> Result<Self, String> {
        let key = &workflow.delivery.key;
        let debezium = workflow.source.format == SourceFormat::Debezium;
        let text = match (&key.format, &workflow.delivery.deduplication) {
            (Some(text), _) => text.as_str(),
            // What tells changes apart makes their keys, too.
            (None, Some(deduplication)) => return Self::of_changes(workflow, deduplication),
            (None, None) if debezium => DEBEZIUM_DEFAULT,
            (None, None) => "",
        };
        // The seed's default format is accepted for any source; without a Debezium envelope it has nothing to name.
        let fields = if text == DEBEZIUM_DEFAULT && !debezium { Vec::new() } else { parse(text, debezium)? };
        Ok(Self { namespace: key.namespace.clone(), fields })
    }

    /// What identifies a change where repeats are suppressed.
    pub fn of_changes(workflow: &Workflow, deduplication: &Deduplication) -> Result<Self, String> {
        let debezium = workflow.source.format == SourceFormat::Debezium;
        let names = deduplication.fields.iter().map(|name| name.trim_matches(['{', '}']));
        let fields: Result<Vec<Field>, String> = names.map(|name| field(name, debezium)).collect();
        Ok(Self { namespace: workflow.delivery.key.namespace.clone(), fields: complete(fields?, debezium) })
    }
}

impl Format {
    /// The name of each component and where it comes from, in order; what every key has beside them is not among them.
    pub fn sources(&self) -> Vec<(String, &'static str)> {
        if self.fields.is_empty() {
            return coordinate_sources();
        }
        let named = |name: &str, from: &'static str| vec![(name.to_owned(), from)];
        let of = |field: &Field| match field {
            Field::Database => named("database", "source.db of the change"),
            Field::Schema => named("schema", "source.schema of the change"),
            Field::Table => vec![
                ("schema".to_owned(), "source.schema of the change, where the connector has one"),
                ("table".to_owned(), "source.table of the change"),
            ],
            Field::PrimaryKey => named("primaryKey", "the record's key"),
            Field::ChangeVersion => vec![
                ("position".to_owned(), "the connector's own position in the source (lsn, file and pos, scn ...)"),
                ("op".to_owned(), "op of the change"),
            ],
            Field::Key => named("key", "the record's key"),
            Field::Topic => named("topic", "the record's topic, by name"),
            Field::Partition => named("partition", "the record's partition"),
            Field::Offset => named("offset", "the record's offset"),
            Field::Pointer(pointer) => named(pointer, "this field of the value"),
            Field::Header(name) => named(&format!("header.{name}"), "the record's last header of this name"),
        };
        self.fields.iter().flat_map(of).collect()
    }

    /// Whether the key is made of where the record stands in Kafka, so that a copy at another offset has another key.
    pub fn is_coordinates(&self) -> bool {
        self.fields.is_empty() || self.fields.contains(&Field::Offset)
    }
}

fn coordinate_sources() -> Vec<(String, &'static str)> {
    let sources = [
        ("cluster", "kafka.cluster, or the id that the brokers report"),
        ("topicId", "the id that the broker gave the topic"),
        ("partition", "the record's partition"),
        ("offset", "the record's offset"),
    ];
    sources.into_iter().map(|(name, from)| (name.to_owned(), from)).collect()
}

fn parse(text: &str, debezium: bool) -> Result<Vec<Field>, String> {
    let mut fields = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let close = rest[open..].find('}').ok_or_else(|| format!("`{text}` has an open brace; allowed: {ALLOWED}"))?;
        fields.push(field(&rest[open + 1..open + close], debezium)?);
        rest = &rest[open + close + 1..];
    }
    if fields.is_empty() && !text.is_empty() {
        return Err(format!("`{text}` names no field; allowed: {ALLOWED}"));
    }
    Ok(complete(fields, debezium))
}

/// Without the row's key the rows of one snapshot or of one insert would share a key, without the version two updates of
/// one row: all but one would be lost.
fn complete(mut fields: Vec<Field>, debezium: bool) -> Vec<Field> {
    for needed in [Field::PrimaryKey, Field::ChangeVersion] {
        if debezium && !fields.contains(&needed) {
            fields.push(needed);
        }
    }
    fields
}

fn field(name: &str, debezium: bool) -> Result<Field, String> {
    let change = match name {
        "database" => Some(Field::Database),
        "schema" => Some(Field::Schema),
        "table" => Some(Field::Table),
        "primaryKey" => Some(Field::PrimaryKey),
        "changeVersion" => Some(Field::ChangeVersion),
        _ => None,
    };
    match (change, debezium) {
        (Some(field), true) => return Ok(field),
        (Some(_), false) => return Err(format!("`{{{name}}}` needs source.format debezium; allowed: {ALLOWED}")),
        (None, _) => {}
    }
    Ok(match name {
        "key" => Field::Key,
        "topic" => Field::Topic,
        "partition" => Field::Partition,
        "offset" => Field::Offset,
        pointer if pointer.starts_with('/') => Field::Pointer(pointer.to_owned()),
        header if header.len() > 7 && header.starts_with("header.") => Field::Header(header[7..].to_owned()),
        _ => return Err(format!("`{{{name}}}` is not a field; allowed: {ALLOWED}")),
    })
}

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

    pub fn key(&self, index: i32) -> String {
        let mut hash = URL_SAFE_NO_PAD.encode(self.fingerprint(index));
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
        Field::Pointer(pointer) => one(pointer, super::jq::pointed(value, pointer)?.into()),
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
