//! Events for callers without Kafka.

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};

use super::workflows::known;
use super::{Json, Path};
use crate::admin::Desk;
use crate::admin::answer::{Problem, Refusal};
use crate::admin::guard::Who;
use crate::operate::submit::{Accepted, Given, NewEvent};

/// Whatever a workflow's `maxBytes` says, no request is longer than this.
pub const LONGEST_BODY: usize = 16 << 20;

/// Store an event, and deliver it like those from Kafka. Answers once it is durable.
#[utoipa::path(post, path = "/v1/workflows/{id}/events", tag = "events", params(("id" = String, Path)),
    request_body(content = NewEvent, content_type = "application/json"), responses(
    (status = 201, body = Accepted), (status = 200, body = Accepted, description = "The same was there already."),
    (status = 400, body = Problem), (status = 401, body = Problem), (status = 403, body = Problem),
    (status = 404, body = Problem), (status = 409, body = Problem), (status = 413, body = Problem),
    (status = 415, body = Problem), (status = 503, body = Problem)))]
pub async fn submit(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Accepted>), Refusal> {
    let operator = known(&desk, &who, &id)?;
    let api = desk.api()?;
    if !api.takes_events(&id) {
        return Err(operator.no_workflow(&id).into());
    }
    let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok());
    let accepted = operator.submit(&api.submissions, &id, &Given { request: &body, traceparent }).await?;
    let status = if accepted.deduplicated { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(accepted)))
}
