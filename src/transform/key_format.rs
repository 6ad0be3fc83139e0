//! Which fields make a key: `idempotencyKey.format`, or what tells changes apart, or the Kafka coordinates. Enters: a
//! workflow's configuration. Leaves: the fields in order, those that every key of a change must have among them.

use std::sync::Arc;

use super::decode::Decoded;
use super::jq;
use super::native::Native;
use crate::config::{Deduplication, Format as SourceFormat, Workflow};

const DEBEZIUM_DEFAULT: &str = "{database}:{table}:{primaryKey}:{changeVersion}";

/// One placeholder of `idempotencyKey.format`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    Database,
    Schema,
    Table,
    PrimaryKey,
    ChangeVersion,
    Key,
    Topic,
    Partition,
    Offset,
    Pointer(Pointer),
    Header(String),
}

/// A JSON pointer into the value.
#[derive(Debug, Clone)]
pub(super) struct Pointer {
    pub text: String,
    /// The same as a path that needs no interpreter, where its parts are plain names.
    path: Option<Arc<Native>>,
}

impl PartialEq for Pointer {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pointer {}

impl Pointer {
    fn new(text: &str) -> Self {
        let is_name = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let path = text.split('/').skip(1).all(is_name).then(|| Native::compile(&text.replace('/', "."))).flatten();
        Self { text: text.to_owned(), path: path.map(Arc::new) }
    }

    /// The JSON of what it points at. Null is missing.
    pub fn read(&self, value: &Decoded<'_>) -> Option<String> {
        if let (Some(path), Decoded::Json(text)) = (&self.path, value)
            && let Ok(found) = path.run(text)
        {
            return found.filter(|json| json != "null");
        }
        jq::pointed(value, &self.text)
    }
}

/// A parsed `idempotencyKey.format`; no fields means the Kafka coordinates.
#[derive(Debug, Clone, PartialEq)]
pub struct Format {
    pub(super) namespace: String,
    pub(super) fields: Vec<Field>,
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
            Field::Pointer(pointer) => named(&pointer.text, "this field of the value"),
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
        pointer if pointer.starts_with('/') => Field::Pointer(Pointer::new(pointer)),
        header if header.len() > 7 && header.starts_with("header.") => Field::Header(header[7..].to_owned()),
        _ => return Err(format!("`{{{name}}}` is not a field; allowed: {ALLOWED}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_without_an_interpreter_finds_what_the_other_finds() {
        let values = [
            r#"{"a":{"b":1,"c":[10,20]},"d":null}"#,
            r#"{"a":{"b":"x\u0041\n"},"d":{"a":{"b":{ "c" : 1.50 , "d":[ ]}}}}"#,
            r#"{"a":{"b":1,"b":2},"d":9007199254740993}"#,
            r#"{"a":[{"b":1}],"b":true}"#,
            r#"{"a":7}"#,
            r#"{"a":"b"}"#,
            "[1,2]",
            "7",
            "null",
        ];
        for text in values {
            for pointer in ["/a", "/a/b", "/a/c", "/a/c/1", "/d", "/d/a/b", "/b", "/x", "/a~1b", "/", "/a/"] {
                let value = Decoded::Json(text);
                let (found, wanted) = (Pointer::new(pointer).read(&value), jq::pointed(&value, pointer));
                assert_eq!(found, wanted, "{pointer} in {text}");
            }
        }
        assert!(Pointer::new("/after/n").path.is_some() && Pointer::new("/items/0").path.is_none());
    }
}
