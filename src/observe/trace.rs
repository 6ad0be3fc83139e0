//! One trace per event, from its record through ingest and queue to each attempt. Enters: what an attempt came to. Leaves: spans, into a
//! bounded queue that `export` empties; what does not fit is dropped and counted, because deliveries wait for nobody.
//!
//! Ids are made of the event's trace context, so that every process that works on an event makes the same ones, and nothing of a trace
//! needs to be stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

/// Spans that wait to be sent.
const MOST_WAITING: usize = 16_384;

/// A part of a trace that is over. Times are nanoseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub trace: String,
    pub id: String,
    pub parent: Option<String>,
    pub name: &'static str,
    /// Whether it is a request to somebody else.
    pub is_client: bool,
    pub from: u64,
    pub to: u64,
    pub attributes: Vec<(&'static str, String)>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// A trace context as W3C writes it, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context<'a> {
    trace: &'a str,
    parent: &'a str,
    is_sampled: bool,
}

impl<'a> Context<'a> {
    pub fn read(text: &'a str) -> Option<Self> {
        let mut parts = text.split('-');
        let (_, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        (trace.len() == 32 && parent.len() == 16).then_some(Self { trace, parent, is_sampled })
    }

    /// The context that an attempt hands on: its own span is the parent of what the receiver does.
    pub fn of_attempt(&self, attempt: u32) -> String {
        let id = self.id("attempt", attempt);
        format!("00-{}-{id}-{}", self.trace, if self.is_sampled { "01" } else { "00" })
    }

    fn id(&self, part: &str, number: u32) -> String {
        let digest = Sha256::new()
            .chain_update(self.trace)
            .chain_update(self.parent)
            .chain_update(part)
            .chain_update(number.to_be_bytes())
            .finalize();
        digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// What is told of an attempt. Times are nanoseconds since 1970.
#[derive(Debug, Clone)]
pub struct Told<'a> {
    /// Carried by the record, or made for the event.
    pub context: &'a str,
    pub is_made: bool,
    pub workflow: &'a str,
    pub event: String,
    pub attempt: u32,
    pub outcome: &'static str,
    pub status: Option<u16>,
    pub error: Option<String>,
    pub is_delivered: bool,
    pub record_at: Option<u64>,
    pub stored_at: u64,
    pub began: u64,
    pub ended: u64,
}

/// Where spans go.
#[derive(Debug, Clone)]
pub struct Tracer {
    spans: mpsc::Sender<Span>,
    dropped: Arc<AtomicU64>,
}

impl Tracer {
    pub fn new() -> (Self, mpsc::Receiver<Span>) {
        let (spans, queue) = mpsc::channel(MOST_WAITING);
        (Self { spans, dropped: Arc::default() }, queue)
    }

    /// How many did not fit since this was last asked.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    /// An attempt is over: its span, and with the first one those of what came before it.
    pub fn attempt(&self, told: &Told<'_>) {
        let Some(context) = Context::read(told.context).filter(|context| context.is_sampled) else { return };
        let mut attributes =
            vec![("oncebox.workflow", told.workflow.to_owned()), ("oncebox.event", told.event.clone())];
        let span = |name, part, number, from: u64, to: u64, attributes: Vec<(&'static str, String)>| Span {
            trace: context.trace.to_owned(),
            id: context.id(part, number),
            parent: Some(context.parent.to_owned()),
            name,
            is_client: false,
            from,
            to: to.max(from),
            attributes,
            error: None,
        };
        if told.attempt == 1 {
            let first = told.record_at.unwrap_or(told.stored_at);
            if told.is_made {
                // Nobody else has the span that is the parent of the others.
                let root = span("oncebox event", "event", 0, first, told.ended, attributes.clone());
                self.put(Span { id: context.parent.to_owned(), parent: None, ..root });
            }
            self.put(span("oncebox ingest", "ingest", 0, first, told.stored_at, attributes.clone()));
            self.put(span("oncebox queue", "queue", 0, told.stored_at, told.began, attributes.clone()));
        }
        attributes.push(("oncebox.attempt", told.attempt.to_string()));
        attributes.push(("oncebox.outcome", told.outcome.to_owned()));
        if let Some(status) = told.status {
            attributes.push(("http.response.status_code", status.to_string()));
        }
        let error = (!told.is_delivered).then(|| told.error.clone().unwrap_or_else(|| told.outcome.to_owned()));
        let attempt = span("oncebox attempt", "attempt", told.attempt, told.began, told.ended, attributes);
        self.put(Span { is_client: true, error, ..attempt });
    }

    fn put(&self, span: Span) {
        if self.spans.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARRIED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn told(context: &str, attempt: u32) -> Told<'_> {
        Told {
            context,
            is_made: false,
            workflow: "orders",
            event: "e".to_owned(),
            attempt,
            outcome: "http_5xx",
            status: Some(503),
            error: None,
            is_delivered: false,
            record_at: Some(1),
            stored_at: 2,
            began: 3,
            ended: 4,
        }
    }

    #[test]
    fn an_event_is_one_trace_from_its_record_through_each_attempt() {
        let (tracer, mut queue) = Tracer::new();
        tracer.attempt(&told(CARRIED, 1));
        tracer.attempt(&told(CARRIED, 2));
        let spans: Vec<Span> = std::iter::from_fn(|| queue.try_recv().ok()).collect();
        assert_eq!(
            spans.iter().map(|span| span.name).collect::<Vec<_>>(),
            ["oncebox ingest", "oncebox queue", "oncebox attempt", "oncebox attempt"]
        );
        assert!(spans.iter().all(|span| span.trace == "0af7651916cd43dd8448eb211c80319c"
            && span.parent.as_deref() == Some("b7ad6b7169203331")));
        let ids: std::collections::BTreeSet<&str> = spans.iter().map(|span| span.id.as_str()).collect();
        assert_eq!(ids.len(), 4);
        let handed_on = Context::read(CARRIED).unwrap().of_attempt(2);
        assert_eq!(handed_on, format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", spans[3].id));
        assert_eq!(spans[3].error.as_deref(), Some("http_5xx"));
    }

    #[test]
    fn what_is_not_sampled_or_no_context_makes_no_span() {
        let (tracer, mut queue) = Tracer::new();
        for context in ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "", "00-1-2-01", "nonsense"] {
            tracer.attempt(&told(context, 1));
        }
        assert!(queue.try_recv().is_err());
    }
}
