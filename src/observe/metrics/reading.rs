//! Metrics read back, for people who look at this process: the API and the dashboard.

use std::sync::Arc;

use super::{Metrics, WorkflowMetrics};

impl Metrics {
    /// The workflows that have metrics, and theirs.
    pub fn workflows(&self) -> Vec<(Arc<str>, Arc<WorkflowMetrics>)> {
        let workflows = self.workflows.read().expect("no holder of this lock panics");
        workflows.iter().map(|(id, metrics)| (Arc::clone(id), Arc::clone(metrics))).collect()
    }

    pub fn workflow(&self, id: &str) -> Option<Arc<WorkflowMetrics>> {
        self.workflows.read().expect("no holder of this lock panics").get(id).cloned()
    }

    /// Records of a workflow that are not read yet, over all its partitions; nothing when that is not known.
    pub fn kafka_lag_of(&self, workflow: &str) -> Option<i64> {
        gauges_of(&self.kafka_lag, workflow).map(|lag| lag as i64).reduce(|sum, lag| sum + lag)
    }

    /// The ages of the oldest event that is late, and of the oldest undelivered one, as they were last found.
    pub fn ages_of(&self, workflow: &str) -> Option<(f64, f64)> {
        let late = gauges_of(&self.delivery_lag, workflow).next()?;
        Some((late, gauges_of(&self.undelivered_age, workflow).next()?))
    }
}

/// The values of a workflow's series.
fn gauges_of(gauges: &impl prometheus::core::Collector, workflow: &str) -> impl Iterator<Item = f64> {
    let is_of = |metric: &prometheus::proto::Metric| {
        metric.get_label().iter().any(|label| label.name() == "workflow" && label.value() == workflow)
    };
    let families = gauges.collect();
    let values: Vec<f64> = families
        .iter()
        .flat_map(|family| family.get_metric())
        .filter(|metric| is_of(metric))
        .map(|metric| metric.get_gauge().get_value())
        .collect();
    values.into_iter()
}
