//! Enters: a sample record. Leaves: every step that was taken with it, what became of it, and its events.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::sample::Sample;
use crate::config::{EventType, Format, Workflow};
use crate::event::{CursorId, Draft, Event, Filed};
use crate::observe::chain;
use crate::transform::debezium::Change;
use crate::transform::decode::{Decoded, Output};
use crate::transform::key::Keys;
use crate::transform::{Disposition, Step, Transformer};

/// What becomes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    Delivered,
    Filtered,
    Tombstone,
    Invalid,
}

impl Ending {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Filtered => "filtered",
            Self::Tombstone => "tombstone",
            Self::Invalid => "invalid",
        }
    }
}

/// One record's way.
#[derive(Debug)]
pub struct Walk {
    /// What was done and what came of it, in order.
    pub steps: Vec<(&'static str, String)>,
    pub ending: Ending,
    pub drafts: Vec<Draft>,
    /// The transform's output behind each draft.
    pub outputs: Vec<Output>,
    /// The keys are made of the record's place in Kafka.
    pub of_place: bool,
}

impl Walk {
    /// Fails only for a workflow that `transform::problems` would have refused.
    pub fn take(workflow: &Arc<Workflow>, sample: &Sample) -> Result<Self, String> {
        let transformer = Transformer::new(Arc::clone(workflow))?;
        let mut steps = vec![("record", described(sample))];
        let mut outputs = Vec::new();
        let mut of_place = false;
        let disposition = transformer.apply_watched(&sample.record, &sample.origin, &mut |step| match step {
            Step::Decoded { value, change } => steps.push(("decode", decoded(value, change))),
            Step::Kept => {
                if let Some(program) = &workflow.filter {
                    steps.push(("filter", format!("{program}\nkept")));
                }
            }
            Step::Transformed { outputs: made } => {
                outputs = made.to_vec();
                let program = workflow.transform.as_deref().unwrap_or(".");
                steps.push(("transform", format!("{program}\n{}", counted(made.len()))));
            }
            Step::Keyed { keys } => {
                let (text, place) = keyed(keys);
                of_place = place;
                steps.push(("key", text));
            }
        });
        let (ending, drafts, last) = ended(workflow, disposition);
        steps.extend(last);
        Ok(Self { steps, ending, drafts, outputs, of_place })
    }

    /// The events as the relay would have them.
    pub fn events(&self, workflow: &Workflow, sample: &Sample) -> Vec<Event> {
        let origin = &sample.origin;
        let cursor = CursorId::of(&workflow.id, &origin.cluster, &origin.topic_id, origin.partition);
        let filed = Filed { generation: 0, day: jiff::civil::Date::constant(1970, 1, 1), stored_at: 0 };
        let event = |draft: &Draft| draft.clone().into_event(cursor, &origin.topic, origin.partition, filed);
        self.drafts.iter().map(event).collect()
    }
}

fn ended(workflow: &Workflow, disposition: Disposition) -> (Ending, Vec<Draft>, Option<(&'static str, String)>) {
    match disposition {
        // A program may make no event of a record: that is a filter by another name.
        Disposition::Events { drafts, .. } if drafts.is_empty() => {
            (Ending::Filtered, drafts, Some(("dropped", "the transform gave no output".to_owned())))
        }
        Disposition::Events { drafts, .. } => {
            let from = match &workflow.event_type {
                EventType::Topic => "the topic".to_owned(),
                EventType::Text(_) => "as configured".to_owned(),
                EventType::Jq(program) => program.clone(),
            };
            let name = drafts.first().map(|draft| draft.event_type.clone()).unwrap_or_default();
            (Ending::Delivered, drafts, Some(("eventType", format!("{name} ({from})"))))
        }
        Disposition::Filtered => {
            let program = workflow.filter.as_deref().unwrap_or_default();
            (Ending::Filtered, Vec::new(), Some(("filter", format!("{program}\ngave false, null or nothing: dropped"))))
        }
        Disposition::Tombstone => {
            let why = "no value, and source.tombstones is skip: dropped".to_owned();
            (Ending::Tombstone, Vec::new(), Some(("tombstone", why)))
        }
        Disposition::Rejected(rejection) => (Ending::Invalid, Vec::new(), Some(("invalid", chain(&rejection)))),
    }
}

fn described(sample: &Sample) -> String {
    let (record, origin) = (&sample.record, &sample.origin);
    let time = record.timestamp.and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    let time = time.map_or_else(|| "no timestamp".to_owned(), |time| format!("{time:.3}"));
    let key = record.key.as_deref().map_or_else(|| "no key".to_owned(), |key| format!("key {}", readable(key)));
    let headers = record.headers.len();
    format!("{}/{}/{}, {time}, {key}, {headers} headers", origin.topic, origin.partition, record.offset)
}

fn decoded(value: &Decoded<'_>, change: Option<&Change<'_>>) -> String {
    let kind = match value {
        Decoded::Json(text) => format!("json, {} bytes", text.len()),
        Decoded::Text(text) => format!("text, {} bytes", text.len()),
        Decoded::Bytes(bytes) => format!("{} bytes, base64 in jq and in JSON", bytes.len()),
    };
    let Some(change) = change else { return kind };
    let names: Vec<&str> =
        [&change.database, &change.schema, &change.table].into_iter().flatten().map(String::as_str).collect();
    let op = change.op.as_deref().unwrap_or("none");
    let position: Vec<String> = change.position.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let position = if position.is_empty() { "no position".to_owned() } else { position.join(" ") };
    format!("{kind}\nchange of {}, op {op}, {position}", names.join("."))
}

/// The key's components, and whether they are the record's place.
fn keyed(keys: &Keys) -> (String, bool) {
    let (namespace, pairs) = keys.components();
    let mut lines = vec![format!("namespace = {}", readable(namespace))];
    let mut of_place = keys.fell_back();
    for (name, value) in pairs {
        of_place |= name == b"topicId" || name == b"offset";
        lines.push(format!("{} = {}", readable(name), readable(value)));
    }
    lines.push("index = the event's number".to_owned());
    if keys.fell_back() {
        lines.push("a field that the format names is missing: the Kafka coordinates stand in for all".to_owned());
    }
    (lines.join("\n"), of_place)
}

fn readable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("base64 {}", STANDARD.encode(bytes)),
    }
}

fn counted(events: usize) -> String {
    match events {
        1 => "1 event".to_owned(),
        many => format!("{many} events"),
    }
}

/// What the steps do not say: how the body is wrapped.
pub fn envelope(workflow: &Workflow, draft: &Draft) -> String {
    use crate::config::Envelope;
    let name = match workflow.delivery.envelope {
        Envelope::Keyed => "keyed",
        Envelope::None => "none",
        Envelope::Cloudevents => "cloudevents",
    };
    let time = match workflow.source.format {
        Format::Debezium => "the source's time",
        Format::Plain => "the record's time",
    };
    format!("{name}, {}, {} bytes; its time is {time}", draft.content_type.as_str(), draft.body.len())
}
