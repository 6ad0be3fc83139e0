//! Events for callers without Kafka.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};

use super::body::Incoming;
use super::workflows::known;
use super::{Json, Path};
use crate::admin::Desk;
use crate::admin::answer::{Problem, Refusal};
use crate::admin::guard::Who;
use crate::operate::submit::{Accepted, Given, NewEvent};

/// Store an event, and deliver it like those from Kafka. Answers once it is durable.
///
/// The data may have as many bytes as the workflow's `maxBytes` says, all the rest 64 KiB, and no request more than 16 MiB.
#[utoipa::path(post, path = "/v1/workflows/{id}/events", tag = "events", params(("id" = String, Path)),
    request_body(content = NewEvent, content_type = "application/json"), responses(
    (status = 201, body = Accepted), (status = 200, body = Accepted, description = "The same was there already."),
    (status = 400, body = Problem), (status = 401, body = Problem), (status = 403, body = Problem),
    (status = 404, body = Problem), (status = 408, body = Problem), (status = 409, body = Problem),
    (status = 413, body = Problem), (status = 415, body = Problem),
    (status = 503, body = Problem, description = "`too_many_waiting`, with Retry-After, while more is undelivered than the workflow's \
        `maxWaiting` or `maxWaitingBytes` allows; `unavailable` otherwise.")))]
pub async fn submit(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Accepted>), Refusal> {
    let mut incoming = Incoming::new(&headers, body);
    let taken = take(&desk, &who, &id, &headers, &mut incoming).await;
    if taken.is_err() {
        incoming.pass_over().await;
    }
    let accepted = taken?;
    let status = if accepted.deduplicated { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(accepted)))
}

async fn take(
    desk: &Desk,
    who: &Who,
    id: &str,
    headers: &HeaderMap,
    incoming: &mut Incoming,
) -> Result<Accepted, Refusal> {
    let operator = known(desk, who, id)?;
    let api = desk.api()?;
    let (Some(intake), Some(flow)) = (api.intake(id), operator.configured(id)) else {
        return Err(operator.no_workflow(id).into());
    };
    let request = incoming.read(flow.source.max_bytes).await?;
    let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok());
    let given = Given { request: &request.bytes, traceparent };
    Ok(operator.submit(&api.submissions, &intake, &given).await?)
}
