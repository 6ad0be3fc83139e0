//! What this process knows of its own work: rates over the last minutes, shares of errors, percentiles of its stages.
//!
//! Rates come from samples of the counters, one every few seconds; nothing on the way of an event does more for them.

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

/// Counters at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    delivered: u64,
    attempts: u64,
}

/// The last samples of every workflow.
#[derive(Debug, Default)]
pub struct History(Mutex<HashMap<Arc<str>, VecDeque<Sample>>>);

impl History {
    /// Takes samples until it is dropped.
    pub async fn sample_forever(self: Arc<Self>, metrics: Arc<Metrics>) {
        loop {
            for (id, workflow) in metrics.workflows() {
                let mut all = self.0.lock().expect("no holder of this lock panics");
                let samples = all.entry(id).or_default();
                samples.push_back(sample(&workflow));
                if samples.len() > KEPT {
                    samples.pop_front();
                }
            }
            tokio::time::sleep(STEP).await;
        }
    }

    /// What is known of a workflow; nothing when this process does not run it.
    pub fn live(&self, metrics: &Metrics, id: &str) -> Option<Live> {
        let workflow = metrics.workflow(id)?;
        let samples: Vec<Sample> = {
            let all = self.0.lock().expect("no holder of this lock panics");
            all.get(id).into_iter().flatten().copied().collect()
        };
        let now = sample(&workflow);
        let steps = samples.len().min(RECENT);
        let before = samples.len().checked_sub(RECENT).and_then(|at| samples.get(at)).or(samples.first());
        let (delivered, attempts) =
            before.map_or((0, 0), |before| (now.delivered - before.delivered, now.attempts - before.attempts));
        let seconds = STEP.as_secs_f64() * steps.max(1) as f64;
        let rate = |pair: &[Sample]| (pair[1].delivered - pair[0].delivered) as f64 / STEP.as_secs_f64();
        let stages = [
            ("ingest", &workflow.ingest_stage),
            ("queue", &workflow.queue_stage),
            ("send", &workflow.send_stage),
            ("settle", &workflow.settle_stage),
            ("total", &workflow.latency),
        ];
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
            stages: stages
                .into_iter()
                .map(|(name, stage)| (name.to_owned(), percentiles(stage)))
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

/// The bounds of the buckets that these shares fall into.
fn percentiles(histogram: &prometheus::Histogram) -> Percentiles {
    let metric = histogram.metric();
    let histogram = metric.get_histogram();
    let total = histogram.get_sample_count() as f64;
    let bound = |share: f64| {
        let mut buckets = histogram.get_bucket().iter();
        let found = buckets.find(|bucket| bucket.cumulative_count() as f64 >= share * total);
        // Beyond the last bucket there is no bound to tell: the last one is the least it can be.
        let last = || histogram.get_bucket().iter().rev().find(|bucket| bucket.upper_bound().is_finite());
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
        assert_eq!(percentiles(&histogram), Percentiles::default());
        (0..90).for_each(|_| histogram.observe(0.05));
        (0..9).for_each(|_| histogram.observe(0.5));
        histogram.observe(100.0);
        assert_eq!(percentiles(&histogram), Percentiles { p50: Some(0.1), p90: Some(0.1), p99: Some(1.0) });
        (0..900).for_each(|_| histogram.observe(100.0));
        assert_eq!(percentiles(&histogram).p50, Some(10.0));
    }
}
