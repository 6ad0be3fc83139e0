//! Replays of many dead letters: begun here, carried out by the processes that run.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{Json, Path, Query};
use crate::admin::Desk;
use crate::admin::answer::{Problem, Refusal};
use crate::admin::guard::Who;
use crate::dead_letter::Filter;
use crate::dead_letter::job::{Order, Replay, Word};
use crate::operate::{Page, page_length};

/// Which dead letters are to be delivered again, and how.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayWanted)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Wanted {
    /// Only those of this workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Only those with this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only those written at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Only those written before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
    /// At most so many a second, 0.1 to 100000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// Only say how many there are.
    pub dry_run: bool,
    /// Also of at-most-once workflows, whose endpoints may then see events twice.
    pub force: bool,
    /// Under other keys, so that receivers take them for new events.
    pub new_key: bool,
    /// Of the caller's making: asked for again under one id, it is begun once.
    #[schema(value_type = Option<String>, format = "uuid")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
}

/// How many there are.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub struct Count {
    pub count: i64,
}

/// Deliver many dead letters again. With `dryRun` nothing is done, and how many there are is answered.
#[utoipa::path(post, path = "/v1/dead-letters/replay", tag = "replays", request_body = Wanted, responses(
    (status = 202, body = Replay), (status = 200, body = Count), (status = 400, body = Problem),
    (status = 401, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem),
    (status = 413, body = Problem), (status = 415, body = Problem), (status = 503, body = Problem)))]
pub async fn create(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Json(wanted): Json<Wanted>,
) -> Result<Response, Refusal> {
    let operator = desk.operator(&who)?;
    let Wanted { workflow, reason, from, to, per_second, dry_run, force, new_key, id } = wanted;
    if workflow.as_ref().is_some_and(|id| id.contains('\0')) {
        return Err(Refusal::invalid("`workflow` holds a NUL character"));
    }
    let filter = Filter { workflow, reason, from, to };
    if dry_run {
        let count = operator.count_dead_letters(&filter).await?;
        return Ok(Json(Count { count }).into_response());
    }
    let order = Order { id: id.unwrap_or_else(Uuid::new_v4), filter, per_second, new_key, force };
    let begun = operator.replay_many(&order).await?;
    Ok((StatusCode::ACCEPTED, Json(begun)).into_response())
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Listed {
    /// The `next` of the page before.
    after: Option<String>,
    /// At most so many: 1 to 500.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// Replays, newest first.
#[utoipa::path(get, path = "/v1/replays", tag = "replays", params(Listed), responses(
    (status = 200, body = Page<Replay>), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 503, body = Problem)))]
pub async fn list(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Query(listed): Query<Listed>,
) -> Result<Json<Page<Replay>>, Refusal> {
    let limit = page_length(listed.limit)?;
    Ok(Json(desk.operator(&who)?.replay_jobs(listed.after.as_deref(), limit).await?))
}

/// One replay, and how far it is.
#[utoipa::path(get, path = "/v1/replays/{id}", tag = "replays", params(("id" = String, Path, format = "uuid")), responses(
    (status = 200, body = Replay), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem), (status = 503, body = Problem)))]
pub async fn show(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Path(id): Path<Uuid>,
) -> Result<Json<Replay>, Refusal> {
    Ok(Json(desk.operator(&who)?.replay_job(id).await?))
}

/// Stop a replay for a while.
#[utoipa::path(post, path = "/v1/replays/{id}/pause", tag = "replays", params(("id" = String, Path, format = "uuid")), responses(
    (status = 200, body = Replay), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 415, body = Problem), (status = 503, body = Problem)))]
pub async fn pause(desk: State<Desk>, who: Extension<Who>, id: Path<Uuid>) -> Result<Json<Replay>, Refusal> {
    decide(desk, who, id, Word::Pause).await
}

/// Go on with a replay that was paused.
#[utoipa::path(post, path = "/v1/replays/{id}/resume", tag = "replays", params(("id" = String, Path, format = "uuid")), responses(
    (status = 200, body = Replay), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 415, body = Problem), (status = 503, body = Problem)))]
pub async fn resume(desk: State<Desk>, who: Extension<Who>, id: Path<Uuid>) -> Result<Json<Replay>, Refusal> {
    decide(desk, who, id, Word::Resume).await
}

/// End a replay. What it has not reached stays a dead letter.
#[utoipa::path(post, path = "/v1/replays/{id}/cancel", tag = "replays", params(("id" = String, Path, format = "uuid")), responses(
    (status = 200, body = Replay), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 415, body = Problem), (status = 503, body = Problem)))]
pub async fn cancel(desk: State<Desk>, who: Extension<Who>, id: Path<Uuid>) -> Result<Json<Replay>, Refusal> {
    decide(desk, who, id, Word::Cancel).await
}

async fn decide(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Path(id): Path<Uuid>,
    word: Word,
) -> Result<Json<Replay>, Refusal> {
    Ok(Json(desk.operator(&who)?.decide_replay(id, word).await?))
}
