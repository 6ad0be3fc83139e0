//! The API under `/v1`: what can be asked, by whom it is answered, and its own description (`/openapi.json`), made of the handlers.
//!
//! Files by what they are about. A handler takes its request apart and calls `operate`; nothing is decided here.

mod audit;
mod body;
mod capabilities;
mod configurations;
pub mod dead_letters;
pub mod events;
mod offsets;
pub mod replays;
mod submit;
mod workflows;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts};
use tokio::sync::watch;
use utoipa::OpenApi as _;
use utoipa::openapi::RefOr;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Desk;
use super::answer::Refusal;
use super::guard::Who;
use super::live::History;
use crate::config::{Kafka, Workflow};
use crate::operate::Operator;
use crate::operate::submit::Intake;
use crate::outbox::Database;
use crate::outbox::submit::Submissions;

/// Bodies are filters and words, never events.
const BODY_BYTES: usize = 64 << 10;

/// What the API works with.
pub struct Api {
    /// Connections of its own: a slow question holds up no delivery and no heartbeat.
    pub database: Database,
    pub workflows: watch::Receiver<Vec<Arc<Workflow>>>,
    /// Those of them that are configured: of the others the rest is delivered, and nothing new comes in.
    pub configured: watch::Receiver<Vec<Intake>>,
    pub kafka: Kafka,
    /// Whether this process sends: what it knows of its own work is nothing where it does not.
    pub sends: bool,
    pub history: Arc<History>,
    /// The way for events that callers give.
    pub submissions: Submissions,
}

impl Api {
    /// Where events that callers give come in, if the workflow takes any.
    fn intake(&self, id: &str) -> Option<Intake> {
        self.configured.borrow().iter().find(|one| *one.workflow == *id).cloned()
    }
}

impl Desk {
    /// Somebody who asks, with what their wishes need.
    fn operator(&self, who: &Who) -> Result<Operator, Refusal> {
        let api = self.api()?;
        Ok(Operator {
            database: api.database.clone(),
            kafka: api.kafka.clone(),
            workflows: api.workflows.borrow().clone(),
            who: who.0.clone(),
        })
    }
}

/// A body, or why it is none.
#[derive(FromRequest)]
#[from_request(via(axum::Json), rejection(Refusal))]
pub struct Json<T>(T);

impl<T: serde::Serialize> axum::response::IntoResponse for Json<T> {
    fn into_response(self) -> axum::response::Response {
        axum::Json(self.0).into_response()
    }
}

#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(Refusal))]
pub struct Path<T>(T);

#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(Refusal))]
pub struct Query<T>(T);

/// An event's id in a path.
fn place(id: &str) -> Result<crate::event::Place, Refusal> {
    id.parse().map_err(|error: crate::event::NotAnEventId| Refusal::invalid(error.to_string()))
}

#[derive(utoipa::OpenApi)]
#[openapi(info(
    title = "Oncebox",
    description = "What operators see and decide: workflows, events, dead letters, replays.",
    license(name = "Apache-2.0", identifier = "Apache-2.0")
))]
struct Description;

/// The routes, and the description of them.
pub fn routes() -> (Router<Desk>, String) {
    let (routes, mut description) = OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(workflows::list))
        .routes(routes!(workflows::show))
        .routes(routes!(workflows::pause))
        .routes(routes!(workflows::resume))
        .routes(routes!(workflows::drain))
        .routes(routes!(workflows::park))
        .routes(routes!(offsets::show, offsets::set))
        .routes(routes!(offsets::verify))
        .routes(routes!(events::list))
        .routes(routes!(events::show))
        .routes(routes!(events::resolve))
        .routes(routes!(events::cancel))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::show, dead_letters::discard))
        .routes(routes!(dead_letters::replay))
        .routes(routes!(replays::create))
        .routes(routes!(replays::list))
        .routes(routes!(replays::show))
        .routes(routes!(replays::pause))
        .routes(routes!(replays::resume))
        .routes(routes!(replays::cancel))
        .routes(routes!(audit::list))
        .routes(routes!(capabilities::show))
        .routes(routes!(configurations::list))
        // It reads its body by itself.
        .routes(routes!(submit::submit))
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .split_for_parts();
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let components = description.components.get_or_insert_default();
    components.security_schemes.insert("bearer".to_owned(), RefOr::T(bearer));
    // None where no token is configured.
    let none: [&str; 0] = [];
    description.security = Some(vec![SecurityRequirement::default(), SecurityRequirement::new("bearer", none)]);
    description.info.version = env!("CARGO_PKG_VERSION").to_owned();
    (routes, description.to_json().expect("a description is plain JSON"))
}
