//! Every metric of the product, by the names that SPEC and README promise. Counters are bumped by the stages; gauges
//! that come from Postgres or Kafka are filled by `upkeep` and `ingest::watch` every few seconds and removed when they would be stale.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, RwLock};

use prometheus::{
    Encoder, Gauge, GaugeVec, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder,
};

mod reading;

use super::maker::Maker;
use crate::event::{Reason, WorkflowState};

/// What an attempt came to, as `oncebox_attempts_total` counts it.
pub const OUTCOMES: [&str; 14] = [
    "delivered",
    "in_progress",
    "rejected",
    "throttled",
    "gone",
    "http_3xx",
    "http_4xx",
    "http_5xx",
    "timeout",
    "connect",
    "dns",
    "tls",
    "blocked",
    "other",
];

const STAGES: [&str; 4] = ["ingest", "queue", "send", "settle"];

pub struct Metrics {
    registry: Registry,
    reloads: IntCounterVec,
    last_reload: Gauge,
    /// A registry of its own for `oncebox_workflow_info`, made anew when the workflows change: its label names are theirs, and a
    /// registry never forgets the ones that a name had.
    info: Mutex<Registry>,
    workflows: RwLock<HashMap<Arc<str>, Arc<WorkflowMetrics>>>,
    ingested: IntCounterVec,
    filtered: IntCounterVec,
    delivered: IntCounterVec,
    spilled: IntCounterVec,
    attempts: IntCounterVec,
    retries: IntCounterVec,
    dead_lettered: IntCounterVec,
    duplicates_suppressed: IntCounterVec,
    key_fallbacks: IntCounterVec,
    in_doubt: IntCounterVec,
    leases_expired: IntCounterVec,
    late_acks: IntCounterVec,
    fenced_writes: IntCounterVec,
    in_flight: IntGaugeVec,
    circuit: IntGaugeVec,
    latency: HistogramVec,
    stages: HistogramVec,
    /// Age of the oldest event that is due and undelivered.
    pub delivery_lag: GaugeVec,
    /// Age of the oldest undelivered event, wherever it is.
    pub undelivered_age: GaugeVec,
    /// End offset minus stored offset.
    pub kafka_lag: IntGaugeVec,
    /// How long until Kafka deletes the oldest record that waits there.
    pub retention_headroom: GaugeVec,
    /// Events by state.
    pub events: IntGaugeVec,
    /// Ordering keys that a dead letter holds up.
    pub blocked_keys: IntGaugeVec,
    /// One-hot state of a workflow.
    pub workflow_state: IntGaugeVec,
    /// Age of the oldest open snapshot on the server.
    pub oldest_snapshot: GaugeVec,
    /// Days for which partitions exist already.
    pub partitions_ahead_days: GaugeVec,
}

/// The metrics of one workflow, looked up once.
pub struct WorkflowMetrics {
    pub ingested: IntCounter,
    pub filtered: IntCounter,
    pub delivered: IntCounter,
    pub retries: IntCounter,
    pub key_fallbacks: IntCounter,
    pub spilled: IntCounter,
    pub duplicates_suppressed: IntCounter,
    pub in_doubt: IntCounter,
    pub leases_expired: IntCounter,
    pub late_acks: IntCounter,
    pub fenced_writes: IntCounter,
    pub in_flight: IntGauge,
    pub circuit: IntGauge,
    pub latency: prometheus::Histogram,
    pub ingest_stage: prometheus::Histogram,
    pub queue_stage: prometheus::Histogram,
    pub send_stage: prometheus::Histogram,
    pub settle_stage: prometheus::Histogram,
    attempts: HashMap<&'static str, IntCounter>,
    dead_lettered: HashMap<&'static str, IntCounter>,
}

impl WorkflowMetrics {
    pub fn attempts(&self, outcome: &str) -> &IntCounter {
        self.attempts.get(outcome).unwrap_or_else(|| &self.attempts["other"])
    }

    /// Every outcome, and how often it was.
    pub fn all_attempts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        OUTCOMES.iter().map(|outcome| (*outcome, self.attempts(outcome).get()))
    }

    pub fn dead_lettered(&self, reason: Reason) -> &IntCounter {
        &self.dead_lettered[reason.as_str()]
    }
}

impl Metrics {
    pub fn new() -> Self {
        let registry = Registry::new();
        let make = Maker { registry: &registry };
        let build = make.gauges("oncebox_build_info", "1, with the version.", &["version"]);
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let reloads = make.counters_of("oncebox_config_reloads_total", "Reloads by result.", &["result"]);
        for result in ["applied", "refused"] {
            reloads.with_label_values(&[result]).reset();
        }
        let last_reload = make.gauge("oncebox_config_last_reload_successful", "1 when the last load was valid.");
        last_reload.set(1.0);
        Self {
            reloads,
            last_reload,
            info: Mutex::default(),
            workflows: RwLock::default(),
            ingested: make.counters("oncebox_ingested_total", "Events stored in the outbox."),
            filtered: make.counters("oncebox_filtered_total", "Records dropped by the filter, or tombstones skipped."),
            delivered: make.counters("oncebox_delivered_total", "Events whose delivery was recorded."),
            spilled: make.counters("oncebox_spilled_total", "Events of the direct path that failed and were stored."),
            attempts: make.counters_of("oncebox_attempts_total", "Attempts by outcome.", &["workflow", "outcome"]),
            retries: make.counters("oncebox_retries_total", "Attempts after an event's first."),
            dead_lettered: make.counters_of(
                "oncebox_dead_lettered_total",
                "Events that became dead letters, by reason.",
                &["workflow", "reason"],
            ),
            duplicates_suppressed: make.counters("oncebox_duplicates_suppressed_total", "Repeated changes suppressed."),
            key_fallbacks: make.counters(
                "oncebox_key_fallbacks_total",
                "Records whose key was made of the Kafka coordinates because a field was missing.",
            ),
            in_doubt: make.counters("oncebox_in_doubt_total", "Attempts whose outcome is unknown."),
            leases_expired: make.counters("oncebox_leases_expired_total", "Leases that ran out before the outcome."),
            late_acks: make.counters("oncebox_late_acks_total", "Deliveries answered after their lease ran out."),
            fenced_writes: make.counters("oncebox_fenced_writes_total", "Writes of a stale owner that were refused."),
            in_flight: make.gauges("oncebox_in_flight", "Requests under way.", &["workflow"]),
            circuit: make.gauges("oncebox_circuit_state", "0 closed, 1 half-open, 2 open.", &["workflow"]),
            latency: make.histograms("oncebox_delivery_latency_seconds", "Record timestamp to 2xx.", &["workflow"]),
            stages: make.stages("oncebox_stage_seconds", "Time in a stage.", &["workflow", "stage"]),
            delivery_lag: make.float_gauges(
                "oncebox_delivery_lag_seconds",
                "Age of the oldest event that is due and undelivered; 0 when none.",
                &["workflow"],
            ),
            undelivered_age: make.float_gauges(
                "oncebox_undelivered_age_seconds",
                "Age of the oldest undelivered event wherever it is, retries included.",
                &["workflow"],
            ),
            kafka_lag: make.gauges(
                "oncebox_kafka_lag_records",
                "End offset minus stored offset.",
                &["workflow", "topic", "partition"],
            ),
            retention_headroom: make.float_gauges(
                "oncebox_kafka_retention_headroom_seconds",
                "Time until the topic's retention reaches the oldest record that is not stored yet.",
                &["workflow"],
            ),
            events: make.gauges("oncebox_events", "Events by state.", &["workflow", "state"]),
            blocked_keys: make.gauges("oncebox_blocked_keys", "Ordering keys held up by a dead letter.", &["workflow"]),
            workflow_state: make.gauges("oncebox_workflow_state", "1 for the state it is in.", &["workflow", "state"]),
            oldest_snapshot: make.float_gauges(
                "oncebox_postgres_oldest_snapshot_seconds",
                "Age of the oldest open snapshot on the server.",
                &[],
            ),
            partitions_ahead_days: make.float_gauges(
                "oncebox_partitions_ahead_days",
                "Days for which partitions exist already.",
                &[],
            ),
            registry,
        }
    }

    /// Makes the workflows' metrics appear, at 0: each with its id, guarantee and labels.
    pub fn register(&self, workflows: &[(&Arc<str>, &str, &BTreeMap<String, String>)]) {
        // One metric has one set of label names, so each workflow gets all that any of them has.
        let names: BTreeSet<&str> =
            workflows.iter().flat_map(|(_, _, labels)| labels.keys()).map(String::as_str).collect();
        let all: Vec<&str> = ["workflow", "guarantee"].into_iter().chain(names.iter().copied()).collect();
        let registry = Registry::new();
        let make = Maker { registry: &registry };
        let info = make.gauges("oncebox_workflow_info", "1, with the guarantee and the workflow's labels.", &all);
        for (workflow, guarantee, labels) in workflows {
            let own = names.iter().map(|name| labels.get(*name).map_or("", String::as_str));
            let values: Vec<&str> = [&***workflow, guarantee].into_iter().chain(own).collect();
            info.with_label_values(&values).set(1);
            self.of(workflow);
        }
        *self.info.lock().expect("no holder of this lock panics") = registry;
    }

    /// A new configuration was read.
    pub fn reloaded(&self, is_applied: bool) {
        self.reloads.with_label_values(&[if is_applied { "applied" } else { "refused" }]).inc();
        self.last_reload.set(f64::from(u8::from(is_applied)));
    }

    pub fn of(&self, workflow: &Arc<str>) -> Arc<WorkflowMetrics> {
        if let Some(known) = self.workflows.read().expect("no holder of this lock panics").get(workflow) {
            return Arc::clone(known);
        }
        let labels: &[&str] = &[workflow];
        let counter = |vec: &IntCounterVec| vec.with_label_values(labels);
        let stage = |name: &str| self.stages.with_label_values(&[&**workflow, name]);
        let [ingest, queue, send, settle] = STAGES;
        let made = Arc::new(WorkflowMetrics {
            ingested: counter(&self.ingested),
            filtered: counter(&self.filtered),
            delivered: counter(&self.delivered),
            retries: counter(&self.retries),
            key_fallbacks: counter(&self.key_fallbacks),
            spilled: counter(&self.spilled),
            duplicates_suppressed: counter(&self.duplicates_suppressed),
            in_doubt: counter(&self.in_doubt),
            leases_expired: counter(&self.leases_expired),
            late_acks: counter(&self.late_acks),
            fenced_writes: counter(&self.fenced_writes),
            in_flight: self.in_flight.with_label_values(labels),
            circuit: self.circuit.with_label_values(labels),
            latency: self.latency.with_label_values(labels),
            ingest_stage: stage(ingest),
            queue_stage: stage(queue),
            send_stage: stage(send),
            settle_stage: stage(settle),
            attempts: OUTCOMES.iter().map(|o| (*o, self.attempts.with_label_values(&[&**workflow, o]))).collect(),
            dead_lettered: Reason::ALL
                .iter()
                .map(|r| (r.as_str(), self.dead_lettered.with_label_values(&[&**workflow, r.as_str()])))
                .collect(),
        });
        let mut workflows = self.workflows.write().expect("no holder of this lock panics");
        Arc::clone(workflows.entry(Arc::clone(workflow)).or_insert(made))
    }

    pub fn set_state(&self, workflow: &str, state: WorkflowState) {
        for known in WorkflowState::ALL {
            let value = i64::from(known == state);
            self.workflow_state.with_label_values(&[workflow, known.as_str()]).set(value);
        }
    }

    /// Absent rather than stale.
    pub fn forget_state(&self, workflow: &str) {
        for known in WorkflowState::ALL {
            let _ = self.workflow_state.remove_label_values(&[workflow, known.as_str()]);
        }
    }

    /// The exposition text.
    pub fn text(&self) -> String {
        let mut families = self.registry.gather();
        families.extend(self.info.lock().expect("no holder of this lock panics").gather());
        let mut out = Vec::new();
        TextEncoder::new().encode(&families, &mut out).expect("metrics encode to memory");
        String::from_utf8(out).expect("the exposition format is UTF-8")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
