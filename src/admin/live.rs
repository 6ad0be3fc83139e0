//! What this process knows of its own work: rates over the last minutes, shares of errors, percentiles of its stages.
//!
//! Rates come from samples of the counters, one every few seconds, and percentiles from samples of the histograms' buckets, which are
//! larger and taken more seldom; nothing on the way of an event does more for them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus::core::Metric;

use crate::observe::{Metrics, WorkflowMetrics};
use crate::operate::workflows::{Live, Percentiles};

const STEP: Duration = Duration::from_secs(5);
/// Five minutes.
const KEPT: usize = 61;
/// Half a minute.
const RECENT: usize = 6;
/// Samples of buckets, one every half a minute: what is older than five minutes is not among what they tell.
const BUCKETS_KEPT: usize = 10;
const STAGES: usize = 5;

/// Counters at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    delivered: u64,
    attempts: u64,
}

/// How many observations of a histogram were within each bound, and at the end how many there were.
type Buckets = Vec<u64>;

/// What is kept of one workflow.
#[derive(Debug, Default)]
struct Kept {
    samples: VecDeque<Sample>,
    stages: VecDeque<[Buckets; STAGES]>,
    /// Steps until the buckets are looked at again.
    rest: usize,
}

impl Kept {
    fn take(&mut self, workflow: &WorkflowMetrics) {
        self.samples.push_back(sample(workflow));
        if self.samples.len() > KEPT {
            self.samples.pop_front();
        }
        if self.rest == 0 {
            self.rest = RECENT;
            self.stages.push_back(stages(workflow).map(|(_, stage)| buckets(stage)));
            if self.stages.len() > BUCKETS_KEPT {
                self.stages.pop_front();
            }
        }
        self.rest -= 1;
    }

    /// What the stages had counted five minutes ago; nothing where all that they have counted is newer.
    fn before(&self) -> [Buckets; STAGES] {
        self.stages.front().filter(|_| self.stages.len() == BUCKETS_KEPT).cloned().unwrap_or_default()
    }
}

/// The last samples of every workflow.
#[derive(Debug, Default)]
pub struct History(Mutex<HashMap<Arc<str>, Kept>>);

impl History {
    /// Takes samples until it is dropped.
    pub async fn sample_forever(self: Arc<Self>, metrics: Arc<Metrics>) {
        loop {
            self.take(&metrics);
            tokio::time::sleep(STEP).await;
        }
    }

    fn take(&self, metrics: &Metrics) {
        for (id, workflow) in metrics.workflows() {
            self.0.lock().expect("no holder of this lock panics").entry(id).or_default().take(&workflow);
        }
    }

    /// What is known of a workflow; nothing when this process does not run it.
    pub fn live(&self, metrics: &Metrics, id: &str) -> Option<Live> {
        let workflow = metrics.workflow(id)?;
        let (samples, before_stages): (Vec<Sample>, [Buckets; STAGES]) = {
            let all = self.0.lock().expect("no holder of this lock panics");
            let kept = all.get(id);
            kept.map(|kept| (kept.samples.iter().copied().collect(), kept.before())).unwrap_or_default()
        };
        let now = sample(&workflow);
        let steps = samples.len().min(RECENT);
        let before = samples.len().checked_sub(RECENT).and_then(|at| samples.get(at)).or(samples.first());
        let (delivered, attempts) =
            before.map_or((0, 0), |before| (now.delivered - before.delivered, now.attempts - before.attempts));
        let seconds = STEP.as_secs_f64() * steps.max(1) as f64;
        let rate = |pair: &[Sample]| (pair[1].delivered - pair[0].delivered) as f64 / STEP.as_secs_f64();
        Some(Live {
            in_flight: workflow.in_flight.get(),
            circuit: match workflow.circuit.get() {
                0 => "closed",
                1 => "half-open",
                _ => "open",
            }
            .to_owned(),
            per_second: delivered as f64 / seconds,
            error_share: (attempts > 0).then(|| (attempts - delivered.min(attempts)) as f64 / attempts as f64),
            history: samples.windows(2).map(rate).collect(),
            attempts: workflow.all_attempts().map(|(name, count)| (name.to_owned(), count)).collect(),
            stages: stages(&workflow)
                .into_iter()
                .zip(&before_stages)
                .map(|((name, stage), before)| (name.to_owned(), percentiles(stage, before)))
                .collect::<BTreeMap<_, _>>(),
        })
    }
}

fn sample(workflow: &WorkflowMetrics) -> Sample {
    Sample {
        delivered: workflow.attempts("delivered").get(),
        attempts: workflow.all_attempts().map(|(_, count)| count).sum(),
    }
}

fn stages(workflow: &WorkflowMetrics) -> [(&'static str, &prometheus::Histogram); STAGES] {
    [
        ("ingest", &workflow.ingest_stage),
        ("queue", &workflow.queue_stage),
        ("send", &workflow.send_stage),
        ("settle", &workflow.settle_stage),
        ("total", &workflow.latency),
    ]
}

fn buckets(histogram: &prometheus::Histogram) -> Buckets {
    let metric = histogram.metric();
    let histogram = metric.get_histogram();
    let within = histogram.get_bucket().iter().map(|bucket| bucket.cumulative_count());
    within.chain([histogram.get_sample_count()]).collect()
}

/// The bounds of the buckets that these shares of what was observed since fall into.
fn percentiles(histogram: &prometheus::Histogram, before: &[u64]) -> Percentiles {
    let metric = histogram.metric();
    let histogram = metric.get_histogram();
    let all = histogram.get_bucket();
    let since = |at: usize, count: u64| count.saturating_sub(before.get(at).copied().unwrap_or(0));
    let total = since(all.len(), histogram.get_sample_count()) as f64;
    let bound = |share: f64| {
        let mut counted = all.iter().enumerate().map(|(at, bucket)| (bucket, since(at, bucket.cumulative_count())));
        let found = counted.find(|(_, count)| *count as f64 >= share * total).map(|(bucket, _)| bucket);
        // Beyond the last bucket there is no bound to tell: the last one is the least it can be.
        let last = || all.iter().rev().find(|bucket| bucket.upper_bound().is_finite());
        found.filter(|bucket| bucket.upper_bound().is_finite()).or_else(last).map(|bucket| bucket.upper_bound())
    };
    if total == 0.0 {
        return Percentiles::default();
    }
    Percentiles { p50: bound(0.5), p90: bound(0.9), p99: bound(0.99) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_bounds_of_buckets() {
        let options = prometheus::HistogramOpts::new("a", "b").buckets(vec![0.1, 1.0, 10.0]);
        let histogram = prometheus::Histogram::with_opts(options).unwrap();
        assert_eq!(percentiles(&histogram, &[]), Percentiles::default());
        (0..90).for_each(|_| histogram.observe(0.05));
        (0..9).for_each(|_| histogram.observe(0.5));
        histogram.observe(100.0);
        assert_eq!(percentiles(&histogram, &[]), Percentiles { p50: Some(0.1), p90: Some(0.1), p99: Some(1.0) });
        let before = buckets(&histogram);
        assert_eq!(percentiles(&histogram, &before), Percentiles::default(), "nothing since");
        (0..900).for_each(|_| histogram.observe(100.0));
        assert_eq!(percentiles(&histogram, &[]).p50, Some(10.0));
        (0..9_000).for_each(|_| histogram.observe(0.5));
        assert_eq!(percentiles(&histogram, &before), Percentiles { p50: Some(1.0), p90: Some(1.0), p99: Some(10.0) });
    }

    #[test]
    fn what_took_long_more_than_five_minutes_ago_is_forgotten() {
        let (metrics, history) = (Metrics::new(), History::default());
        let workflow = metrics.of(&Arc::from("orders"));
        let median = || history.live(&metrics, "orders").and_then(|live| live.stages["send"].p50);
        (0..100).for_each(|_| workflow.send_stage.observe(20.0));
        assert_eq!(median(), Some(30.0), "before the first sample");
        (0..30).for_each(|_| history.take(&metrics));
        assert_eq!(median(), Some(30.0), "after two and a half minutes");
        (0..31).for_each(|_| history.take(&metrics));
        assert_eq!(median(), None, "after five minutes in which nothing was sent");
        workflow.send_stage.observe(0.2);
        assert_eq!(median(), Some(0.25));
    }
}
