//! Enters: a Kafka record. Leaves: its disposition: the drafts of its events, or why it makes none.
//!
//! ```text
//! decode → filter → transform → per output: event type, key, envelope → Draft
//! ```
//!
//! Pure: no clock, no I/O. The same record and configuration always give the same bytes, which is what lets a record be
//! read again after a crash or a failover.

pub mod canonical;
pub mod debezium;
pub mod decode;
mod envelope;
pub mod jq;
mod jq_check;
pub mod key;
pub mod key_format;
mod native;
mod rejection;
pub mod unique;

use std::sync::Arc;

use bytes::Bytes;

use crate::config::{Delivery, Encoding, EventType, Format, Tombstones, Workflow};
use crate::event::{ContentType, Draft, Lane, Record};
use debezium::Change;
use decode::{Decoded, Output};
pub use envelope::is_traceparent;
use jq::Program;
pub use rejection::Rejection;

/// What became of one record.
#[derive(Debug)]
pub enum Disposition {
    Events { drafts: Vec<Draft>, key_fell_back: bool },
    Filtered,
    Tombstone,
    Rejected(Rejection),
}

/// Where records of one partition come from, for keys, `$record` and CloudEvents.
#[derive(Debug, Clone)]
pub struct Origin {
    pub cluster: Arc<str>,
    pub topic: Arc<str>,
    pub topic_id: Arc<str>,
    pub partition: i32,
}

/// A step that was taken on the way from a record to its events.
pub enum Step<'a> {
    Decoded {
        value: &'a Decoded<'a>,
        change: Option<&'a Change<'a>>,
    },
    /// The filter, if there is one, let the record pass.
    Kept,
    Transformed {
        outputs: &'a [Output],
    },
    Keyed {
        keys: &'a key::Keys,
    },
}

/// Is told each step.
pub type Watch<'a> = &'a mut dyn FnMut(Step<'_>);

/// A workflow's programs, compiled. jaq's values are not `Send`, so each thread makes its own.
pub struct Transformer {
    workflow: Arc<Workflow>,
    filter: Option<Program>,
    transform: Option<Program>,
    event_type: Option<Program>,
    ordering_key: Option<Program>,
    key: key_format::Format,
    /// What tells changes apart, where repeats are suppressed.
    changes: Option<key_format::Format>,
}

/// One event's data before its envelope, and the bounds of all of one record's.
const MOST_OUTPUTS: usize = 10_000;
const OUTPUT_FACTOR: usize = 8;

impl Transformer {
    /// Fails only for a workflow that `problems` would have refused.
    pub fn new(workflow: Arc<Workflow>) -> Result<Self, String> {
        let compile = |text: &Option<String>| text.as_deref().map(Program::compile).transpose();
        let event_type = match &workflow.event_type {
            EventType::Jq(text) => Some(Program::compile(text)?),
            EventType::Topic | EventType::Text(_) => None,
        };
        Ok(Self {
            filter: compile(&workflow.filter)?,
            transform: compile(&workflow.transform)?,
            event_type,
            ordering_key: compile(&workflow.delivery.ordering_key)?,
            key: key_format::Format::of(&workflow)?,
            changes: changes(&workflow).transpose()?,
            workflow,
        })
    }

    pub fn apply(&self, record: &Record, origin: &Origin) -> Disposition {
        self.apply_watched(record, origin, &mut |_| {})
    }

    /// The same, telling each step that was taken: what `oncebox preview` shows.
    pub fn apply_watched(&self, record: &Record, origin: &Origin, see: Watch<'_>) -> Disposition {
        let source = &self.workflow.source;
        if record.bytes() > source.max_bytes {
            return Disposition::Rejected(Rejection::TooLarge { bytes: record.bytes(), most: source.max_bytes });
        }
        if record.value.is_none() && source.tombstones == Tombstones::Skip {
            return Disposition::Tombstone;
        }
        match self.events(record, origin, see) {
            Ok(Some((drafts, key_fell_back))) => Disposition::Events { drafts, key_fell_back },
            Ok(None) => Disposition::Filtered,
            Err(rejection) => Disposition::Rejected(rejection),
        }
    }

    fn events(
        &self,
        record: &Record,
        origin: &Origin,
        see: Watch<'_>,
    ) -> Result<Option<(Vec<Draft>, bool)>, Rejection> {
        let source = &self.workflow.source;
        let mut decoded = Decoded::new(record.value.as_deref(), source.encoding)?;
        let change = match source.format {
            Format::Debezium if record.value.is_some() => {
                let change = Change::read(decoded.json_text())?;
                decoded = decoded.unwrapped(change.envelope);
                Some(change)
            }
            Format::Debezium | Format::Plain => None,
        };
        see(Step::Decoded { value: &decoded, change: change.as_ref() });
        let record_value = self.needs_record().then(|| jq::record_value(record, origin, source.encoding));
        let is_kept = match &self.filter {
            Some(filter) => filter.is_true(&decoded, record_value.as_ref(), "filter")?,
            // Without one the value itself decides, as it does for any filter; a tombstone has none.
            None => record.value.is_none() || !matches!(decoded, Decoded::Json("null" | "false")),
        };
        if !is_kept {
            return Ok(None);
        }
        see(Step::Kept);
        let event_type = self.event_type(&decoded, record_value.as_ref(), origin)?;
        let outputs = self.outputs(&decoded, record_value.as_ref())?;
        see(Step::Transformed { outputs: &outputs });
        let changed_at = change.as_ref().and_then(|c| c.ts_ms).filter(is_a_time);
        // The body tells the source's time; lag and latency count from the record's.
        let recorded_at = record.timestamp.filter(is_a_time);
        let (source_at, record_at) = (changed_at.or(recorded_at), recorded_at.or(changed_at));
        let keys = key::Keys::of(&self.key, record, origin, change.as_ref(), &decoded);
        // What tells changes apart makes their keys too, unless the configuration has a format of its own for these.
        let is_own = |format: &&key_format::Format| **format != self.key;
        let changes = self.changes.as_ref().filter(is_own);
        let changes = changes.map(|format| key::Keys::of(format, record, origin, change.as_ref(), &decoded));
        see(Step::Keyed { keys: &keys });
        let traceparent = envelope::traceparent(record);
        let lane = self.lane(record, &decoded, record_value.as_ref())?;
        let mut drafts = Vec::with_capacity(outputs.len());
        for (index, output) in outputs.iter().enumerate() {
            let index = i32::try_from(index).expect("outputs are bounded");
            let identity = keys.fingerprint(index);
            let key = keys.key_of(&identity);
            let fingerprint = changes.as_ref().map_or(identity, |changes| changes.fingerprint(index));
            let parts = envelope::Parts { key: &key, event_type: &event_type, source_at, origin, output };
            let (content_type, body) = envelope::wrap(&self.workflow.delivery, &parts);
            drafts.push(Draft {
                offset: record.offset,
                index,
                key,
                event_type: event_type.clone(),
                content_type,
                traceparent: traceparent.clone(),
                record_at,
                lane,
                unique: self.unique_key(&event_type, output, record)?,
                fingerprint: self.changes.is_some().then_some(fingerprint),
                body: Bytes::from(body),
            });
        }
        Ok(Some((drafts, keys.fell_back())))
    }

    fn needs_record(&self) -> bool {
        [&self.filter, &self.transform, &self.event_type, &self.ordering_key]
            .into_iter()
            .flatten()
            .any(Program::uses_record)
    }

    fn outputs(&self, decoded: &Decoded<'_>, record: Option<&jaq_json::Val>) -> Result<Vec<Output>, Rejection> {
        let Some(program) = &self.transform else { return Ok(vec![decoded.pass_through()]) };
        let most = OUTPUT_FACTOR * self.workflow.source.max_bytes;
        let text = matches!(self.workflow.source.encoding, Encoding::Text);
        program.run(decoded, record, "transform", jq::Limits { outputs: MOST_OUTPUTS, bytes: most, text })
    }

    /// Whose order the record's events keep. A record without a key, and one whose ordering key is null, keeps none.
    fn lane(
        &self,
        record: &Record,
        decoded: &Decoded<'_>,
        value: Option<&jaq_json::Val>,
    ) -> Result<Option<Lane>, Rejection> {
        if self.workflow.delivery.ordering.is_none() {
            return Ok(None);
        }
        let Some(program) = &self.ordering_key else { return Ok(record.key.as_deref().map(Lane::of)) };
        let key = program.json(decoded, value, "orderingKey")?;
        Ok(key.filter(|text| text != "null").map(|text| Lane::of(text.as_bytes())))
    }

    /// The key under which another event is the same, where a workflow asks for that.
    fn unique_key(
        &self,
        event_type: &str,
        output: &Output,
        record: &Record,
    ) -> Result<Option<crate::event::Fingerprint>, Rejection> {
        let Some(policy) = &self.workflow.delivery.unique else { return Ok(None) };
        let args = envelope::json(output);
        let meta = unique::Meta::Headers(&record.headers);
        let event = unique::Dimensions { event_type, queue: &self.workflow.id, args: &args, meta };
        Ok(Some(unique::fingerprint(policy, &event)?))
    }

    fn event_type(
        &self,
        decoded: &Decoded<'_>,
        record: Option<&jaq_json::Val>,
        origin: &Origin,
    ) -> Result<String, Rejection> {
        match (&self.workflow.event_type, &self.event_type) {
            (EventType::Text(text), _) => Ok(text.clone()),
            (EventType::Jq(_), Some(program)) => match program.text(decoded, record, "eventType")? {
                // No text column holds it, and no header.
                text if text.contains('\0') => Err(Rejection::EventTypeHasNul),
                text => Ok(text),
            },
            (EventType::Topic | EventType::Jq(_), _) => Ok(origin.topic.to_string()),
        }
    }
}

/// The body of an event that came with its data, and not as a record.
pub fn enveloped(delivery: &Delivery, key: &str, event_type: &str, at: i64, data: &str) -> (ContentType, Vec<u8>) {
    let [cluster, topic] = ["oncebox", "http"].map(Arc::from);
    let origin = Origin { cluster, topic_id: Arc::clone(&topic), topic, partition: 0 };
    let output = Output::Json(data.to_owned());
    envelope::wrap(
        delivery,
        &envelope::Parts { key, event_type, source_at: Some(at), origin: &origin, output: &output },
    )
}

/// Nanoseconds for milliseconds, say, are none: no calendar has them, nor has Postgres.
fn is_a_time(millis: &i64) -> bool {
    (0..=253_402_300_799_999).contains(millis)
}

fn changes(workflow: &Workflow) -> Option<Result<key_format::Format, String>> {
    Some(key_format::Format::of_changes(workflow, workflow.delivery.deduplication.as_ref()?))
}

/// Problems of a workflow's programs and key format, with the key they stand at.
pub fn problems(workflow: &Workflow) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let mut check = |pointer, text: Option<&str>| {
        if let Some(Err(message)) = text.map(Program::compile) {
            found.push((pointer, message));
        }
    };
    check("/filter", workflow.filter.as_deref());
    check("/transform", workflow.transform.as_deref());
    if let EventType::Jq(text) = &workflow.event_type {
        check("/eventType", Some(text));
    }
    check("/delivery/orderingKey", workflow.delivery.ordering_key.as_deref());
    match (changes(workflow), key_format::Format::of(workflow)) {
        (Some(Err(message)), _) => found.push(("/delivery/deduplication/keyFields", message)),
        (_, Err(message)) => found.push(("/delivery/idempotencyKey/format", message)),
        (_, Ok(_)) => {}
    }
    found
}
