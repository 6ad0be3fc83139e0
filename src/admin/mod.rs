//! The HTTP listener of the process: health, readiness, metrics, the API under `/v1`, and the dashboard.
//!
//! Health and metrics answer from the first moment and to anybody. The API answers once Postgres was found good, and only to whom
//! `guard` lets in.
//!
//! Files: `readiness`, `guard` (who may ask), `answer` (how errors look), `live` (what this process knows of its own work), `api` (what can
//! be asked), `dashboard` (the page).

pub mod answer;
pub mod api;
mod dashboard;
mod guard;
pub mod live;
mod readiness;

use std::sync::{Arc, OnceLock};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, middleware};
use tokio::net::TcpListener;

use crate::config::Admin;
use crate::observe::Metrics;

pub use api::Api;
pub use readiness::Readiness;

/// What the listener shows and whom it lets in. Cheap to clone.
#[derive(Clone)]
pub struct Desk {
    pub metrics: Arc<Metrics>,
    pub readiness: Arc<Readiness>,
    guard: Arc<guard::Guard>,
    /// There once Postgres was found good.
    api: Arc<OnceLock<Api>>,
}

impl Desk {
    pub fn new(admin: &Admin, metrics: &Arc<Metrics>) -> Self {
        Self {
            metrics: Arc::clone(metrics),
            readiness: Arc::default(),
            guard: Arc::new(guard::Guard::new(admin)),
            api: Arc::default(),
        }
    }

    /// From now on the API answers.
    pub fn open(&self, api: Api) {
        let _ = self.api.set(api);
    }

    fn api(&self) -> Result<&Api, answer::Refusal> {
        self.api
            .get()
            .ok_or_else(|| answer::Refusal::unavailable("the process is starting: Postgres was not reached yet"))
    }
}

/// Serves until it is dropped; without the API only what probes and Prometheus ask.
pub async fn serve(listener: TcpListener, desk: Desk, with_api: bool) {
    let (api, description) = api::routes();
    let described = move || async move { ([(header::CONTENT_TYPE, "application/json")], description) };
    let guarded = Router::new()
        .merge(api)
        .route("/openapi.json", get(described))
        .merge(dashboard::routes())
        .layer(middleware::from_fn_with_state(desk.clone(), guard::guard));
    let routes = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics_text));
    let routes = match with_api {
        true => routes.merge(guarded).fallback(answer::no_such_path),
        false => routes.fallback(answer::no_api),
    };
    let routes = routes.method_not_allowed_fallback(answer::no_such_method).with_state(desk);
    if let Err(error) = axum::serve(listener, routes).await {
        tracing::error!(%error, "the admin listener ended");
    }
}

async fn ready(State(desk): State<Desk>) -> impl IntoResponse {
    match desk.readiness.missing() {
        None => (StatusCode::OK, "ready\n".to_owned()),
        Some(missing) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {missing}\n")),
    }
}

async fn metrics_text(State(desk): State<Desk>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], desk.metrics.text()).into_response()
}
