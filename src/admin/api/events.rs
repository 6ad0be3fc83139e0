//! Events: which there are, one of them whole, and a word on one that is held.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Json, Path, Query, place};
use crate::admin::Desk;
use crate::admin::answer::{Problem, Refusal};
use crate::admin::guard::Who;
use crate::dead_letter::Payload;
use crate::event::Reason;
use crate::operate::Page;
use crate::operate::events::{Shown, Summary, Word};
use crate::operate::sought::Sought;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Wanted {
    /// Of this workflow. Needed, unless `source` is given.
    workflow: Option<String>,
    /// Only those in this state.
    state: Option<String>,
    /// Only those with this idempotency key. One that a caller gave over HTTP is found at once; for any other all that is stored of the
    /// workflow is read, which is refused where that is too much.
    key: Option<String>,
    /// Only those of this record: topic/partition/offset.
    source: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// At most so many: 1 to 500.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// Events that are stored, by place; of those that are pending, the ones in doubt first. A page may be empty though `next` is not null: then
/// the next one goes on.
#[utoipa::path(get, path = "/v1/events", tag = "events", params(Wanted), responses(
    (status = 200, body = Page<Summary>), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem),
    (status = 422, body = Problem, description = "`too_much_to_search`: narrow it down by `source` or `state`."),
    (status = 503, body = Problem)))]
pub async fn list(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page<Summary>>, Refusal> {
    let sought = Sought {
        workflow: wanted.workflow.as_deref(),
        state: wanted.state.as_deref(),
        key: wanted.key.as_deref(),
        source: wanted.source.as_deref(),
        after: wanted.after.as_deref(),
        limit: wanted.limit,
    };
    Ok(Json(desk.operator(&who)?.find(sought).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Whole {
    /// Also its body, and what was answered.
    #[serde(default)]
    pub payload: bool,
}

impl Whole {
    pub fn payload(&self) -> Payload {
        if self.payload { Payload::Shown } else { Payload::Hidden }
    }
}

/// One event with its requests. What the direct path delivered leaves no row, and is not found.
#[utoipa::path(get, path = "/v1/events/{id}", tag = "events", params(("id" = String, Path), Whole), responses(
    (status = 200, body = Shown), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem), (status = 503, body = Problem)))]
pub async fn show(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Path(id): Path<String>,
    Query(whole): Query<Whole>,
) -> Result<Json<Shown>, Refusal> {
    let place = place(&id)?;
    Ok(Json(desk.operator(&who)?.event(place, whole.payload()).await?))
}

/// What cancelling an event came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cancellation {
    pub id: String,
    /// False when it is over already.
    pub cancel_requested: bool,
}

/// Have an event never sent again. One that is claimed may be on its way: then this is a request.
#[utoipa::path(post, path = "/v1/events/{id}/cancel", tag = "events", params(("id" = String, Path)), responses(
    (status = 200, body = Cancellation), (status = 202, body = Cancellation, description = "It was claimed."),
    (status = 400, body = Problem), (status = 401, body = Problem), (status = 403, body = Problem),
    (status = 404, body = Problem), (status = 409, body = Problem), (status = 415, body = Problem),
    (status = 503, body = Problem)))]
pub async fn cancel(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Cancellation>), Refusal> {
    let place = place(&id)?;
    let is_over = desk.operator(&who)?.cancel(place).await?;
    let status = if is_over { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(Cancellation { id: place.to_string(), cancel_requested: !is_over })))
}

/// What became of an event in doubt.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resolution {
    pub to: Word,
}

/// What was said about an event.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Resolved {
    pub id: String,
    pub resolved: Word,
}

/// Say what became of an event that is held because its outcome is unknown.
#[utoipa::path(post, path = "/v1/events/{id}/resolve", tag = "events", params(("id" = String, Path)),
    request_body = Resolution, responses(
    (status = 200, body = Resolved), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 413, body = Problem), (status = 415, body = Problem), (status = 503, body = Problem)))]
pub async fn resolve(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Path(id): Path<String>,
    Json(resolution): Json<Resolution>,
) -> Result<Json<Resolved>, Refusal> {
    let place = place(&id)?;
    let workflow = desk.operator(&who)?.resolve(place, resolution.to).await?;
    let metrics = desk.metrics.of(&workflow);
    match resolution.to {
        Word::Delivered => metrics.delivered.inc(),
        Word::DeadLetter => metrics.dead_lettered(Reason::InDoubt).inc(),
        Word::Redeliver => {}
    }
    Ok(Json(Resolved { id: place.to_string(), resolved: resolution.to }))
}
