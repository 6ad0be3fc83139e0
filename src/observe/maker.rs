//! Makes metrics and registers each: the names and labels are those that the caller writes down.

use prometheus::{Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

const LATENCY_BUCKETS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// Stages are shorter than the whole.
const STAGE_BUCKETS: [f64; 19] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0,
];

pub(super) struct Maker<'a> {
    pub registry: &'a Registry,
}

impl Maker<'_> {
    pub fn register<T: prometheus::core::Collector + Clone + 'static>(&self, metric: prometheus::Result<T>) -> T {
        let metric = metric.expect("metric names and labels are valid");
        self.registry.register(Box::new(metric.clone())).expect("each metric is registered once");
        metric
    }

    pub fn counters(&self, name: &str, help: &str) -> IntCounterVec {
        self.counters_of(name, help, &["workflow"])
    }

    pub fn counters_of(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.register(IntCounterVec::new(Opts::new(name, help), labels))
    }

    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.register(IntGaugeVec::new(Opts::new(name, help), labels))
    }

    pub fn float_gauges(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.register(GaugeVec::new(Opts::new(name, help), labels))
    }

    pub fn gauge(&self, name: &str, help: &str) -> Gauge {
        self.register(Gauge::new(name, help))
    }

    pub fn histograms(&self, name: &str, help: &str, labels: &[&str]) -> HistogramVec {
        self.histograms_of(name, help, labels, &LATENCY_BUCKETS)
    }

    pub fn stages(&self, name: &str, help: &str, labels: &[&str]) -> HistogramVec {
        self.histograms_of(name, help, labels, &STAGE_BUCKETS)
    }

    fn histograms_of(&self, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(HistogramVec::new(opts, labels))
    }
}
