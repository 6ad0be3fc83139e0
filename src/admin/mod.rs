//! The HTTP listener of the process: health, readiness, metrics.
//!
//! `/readyz` turns true once every group was joined and Postgres and its schema were found good; a later outage does not
//! turn it false again, because restarting the process would help nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::observe::Metrics;

/// What readiness hangs on.
#[derive(Default)]
pub struct Readiness {
    /// Postgres answered and its schema fits; Kafka told its cluster id.
    pub checked: AtomicBool,
    pub stopping: AtomicBool,
    joined: std::sync::Mutex<Vec<(Arc<str>, Arc<AtomicBool>)>>,
}

impl Readiness {
    /// The process is not ready before this workflow's group was joined.
    pub fn await_joined(&self, workflow: &Arc<str>, joined: &Arc<AtomicBool>) {
        let mut list = self.joined.lock().expect("no holder of this lock panics");
        list.push((Arc::clone(workflow), Arc::clone(joined)));
    }

    /// A workflow that ends is not waited for.
    pub fn forget(&self, workflow: &Arc<str>) {
        self.joined.lock().expect("no holder of this lock panics").retain(|(known, _)| known != workflow);
    }

    fn missing(&self) -> Option<String> {
        if self.stopping.load(Ordering::Acquire) {
            return Some("stopping".to_owned());
        }
        if !self.checked.load(Ordering::Acquire) {
            return Some("waiting for Postgres and Kafka".to_owned());
        }
        let joined = self.joined.lock().expect("no holder of this lock panics");
        let missing = joined.iter().find(|(_, joined)| !joined.load(Ordering::Acquire));
        missing.map(|(workflow, _)| format!("workflow {workflow} has not joined its group yet"))
    }
}

#[derive(Clone)]
struct Parts {
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
}

/// Serves until it is dropped.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>, readiness: Arc<Readiness>) {
    let routes = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics_text))
        .with_state(Parts { metrics, readiness });
    if let Err(error) = axum::serve(listener, routes).await {
        tracing::error!(%error, "the admin listener ended");
    }
}

async fn ready(State(parts): State<Parts>) -> impl IntoResponse {
    match parts.readiness.missing() {
        None => (StatusCode::OK, "ready\n".to_owned()),
        Some(missing) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {missing}\n")),
    }
}

async fn metrics_text(State(parts): State<Parts>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], parts.metrics.text())
}
