//! Dead letters: which there are, one of them whole, and what becomes of it.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::events::Whole;
use super::{Json, Path, Query, place};
use crate::admin::Desk;
use crate::admin::answer::{Problem, Refusal};
use crate::admin::guard::Who;
use crate::dead_letter::{Filter, Shown, Summary};
use crate::operate::{Page, page_length};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Wanted {
    /// Only those of this workflow.
    workflow: Option<String>,
    /// Only those with this reason.
    reason: Option<String>,
    /// Only those written at this time or later.
    from: Option<Timestamp>,
    /// Only those written before this time.
    to: Option<Timestamp>,
    /// The `next` of the page before.
    after: Option<String>,
    /// At most so many: 1 to 500.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// Dead letters, newest first.
#[utoipa::path(get, path = "/v1/dead-letters", tag = "dead letters", params(Wanted), responses(
    (status = 200, body = Page<Summary>), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem), (status = 503, body = Problem)))]
pub async fn list(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page<Summary>>, Refusal> {
    let limit = page_length(wanted.limit)?;
    let Wanted { workflow, reason, from, to, after, .. } = wanted;
    let filter = Filter { workflow, reason, from, to };
    Ok(Json(desk.operator(&who)?.dead_letters(&filter, after.as_deref(), limit).await?))
}

/// One dead letter with its requests.
#[utoipa::path(get, path = "/v1/dead-letters/{id}", tag = "dead letters", params(("id" = String, Path), Whole), responses(
    (status = 200, body = Shown), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem), (status = 503, body = Problem)))]
pub async fn show(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Path(id): Path<String>,
    Query(whole): Query<Whole>,
) -> Result<Json<Shown>, Refusal> {
    let place = place(&id)?;
    Ok(Json(desk.operator(&who)?.dead_letter(place).await?.shown(whole.payload())))
}

/// Remove one for good. The events behind it in its ordering key go on.
#[utoipa::path(delete, path = "/v1/dead-letters/{id}", tag = "dead letters", params(("id" = String, Path)), responses(
    (status = 204), (status = 400, body = Problem), (status = 401, body = Problem), (status = 403, body = Problem),
    (status = 404, body = Problem), (status = 415, body = Problem), (status = 503, body = Problem)))]
pub async fn discard(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    let place = place(&id)?;
    desk.operator(&who)?.discard(place).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How one is to be delivered again.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Again {
    /// Also for an at-most-once workflow, whose endpoint may then see the event twice.
    pub force: bool,
    /// Under another key, so that the receiver takes it for a new event.
    pub new_key: bool,
}

/// What was made of a dead letter.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Replayed {
    /// The new event, the first where there are several.
    pub id: String,
    pub events: i64,
}

/// Deliver one again: same key and bytes unless another key is asked for. Once, however often it is asked for.
#[utoipa::path(post, path = "/v1/dead-letters/{id}/replay", tag = "dead letters", params(("id" = String, Path)),
    request_body = Again, responses(
    (status = 200, body = Replayed), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 413, body = Problem), (status = 415, body = Problem), (status = 503, body = Problem)))]
pub async fn replay(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Path(id): Path<String>,
    Json(again): Json<Again>,
) -> Result<Json<Replayed>, Refusal> {
    let place = place(&id)?;
    let (next, events) = desk.operator(&who)?.replay(place, again.force, again.new_key).await?;
    Ok(Json(Replayed { id: next.to_string(), events }))
}
