//! Workflows: where they stand, and what is decided about them.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;

use super::{Json, Path};
use crate::admin::Desk;
use crate::admin::answer::{Problem, Refusal};
use crate::admin::guard::Who;
use crate::event::{Reason, WorkflowState};
use crate::operate::workflows::{Decided, Fate, Resumed, Workflow};
use crate::operate::{Operator, Page};

type Decision = Result<Json<Decided>, Refusal>;

/// All workflows, by id.
#[utoipa::path(get, path = "/v1/workflows", tag = "workflows", responses(
    (status = 200, body = Page<Workflow>), (status = 401, body = Problem), (status = 403, body = Problem),
    (status = 503, body = Problem)))]
pub async fn list(State(desk): State<Desk>, Extension(who): Extension<Who>) -> Result<Json<Page<Workflow>>, Refusal> {
    let found = desk.operator(&who)?.all_workflows().await?;
    let items = found.into_iter().map(|workflow| with_live(&desk, workflow)).collect();
    Ok(Json(Page { items, next: None }))
}

/// One workflow, with its last errors.
#[utoipa::path(get, path = "/v1/workflows/{id}", tag = "workflows", params(("id" = String, Path)), responses(
    (status = 200, body = Workflow), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem), (status = 503, body = Problem)))]
pub async fn show(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Path(id): Path<String>,
) -> Result<Json<Workflow>, Refusal> {
    let found = known(&desk, &who, &id)?.workflow(&id).await?;
    Ok(Json(with_live(&desk, found)))
}

/// Stop sending until it is resumed; what comes in is kept.
#[utoipa::path(post, path = "/v1/workflows/{id}/pause", tag = "workflows", params(("id" = String, Path)), responses(
    (status = 200, body = Decided), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem), (status = 415, body = Problem),
    (status = 503, body = Problem)))]
pub async fn pause(State(desk): State<Desk>, Extension(who): Extension<Who>, Path(id): Path<String>) -> Decision {
    Ok(Json(known(&desk, &who, &id)?.pause(&id).await?))
}

/// Go on after a pause, a suspension or a halt. A pause by the configuration ends there.
#[utoipa::path(post, path = "/v1/workflows/{id}/resume", tag = "workflows", params(("id" = String, Path)), responses(
    (status = 200, body = Resumed), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem),
    (status = 409, body = Problem, description = "Only its configuration pauses it."), (status = 415, body = Problem),
    (status = 503, body = Problem)))]
pub async fn resume(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Path(id): Path<String>,
) -> Result<Json<Resumed>, Refusal> {
    Ok(Json(known(&desk, &who, &id)?.resume(&id).await?))
}

/// Have what is left of a workflow that is not configured any more delivered with its last configuration.
#[utoipa::path(post, path = "/v1/workflows/{id}/drain", tag = "workflows", params(("id" = String, Path)), responses(
    (status = 200, body = Decided), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 415, body = Problem), (status = 503, body = Problem)))]
pub async fn drain(State(desk): State<Desk>, Extension(who): Extension<Who>, Path(id): Path<String>) -> Decision {
    Ok(Json(known(&desk, &who, &id)?.decide_left(&id, Fate::Drain).await?))
}

/// Make dead letters of what is left of a workflow that is not configured any more. It goes on after the answer.
#[utoipa::path(post, path = "/v1/workflows/{id}/park", tag = "workflows", params(("id" = String, Path)), responses(
    (status = 202, body = Decided), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 415, body = Problem), (status = 503, body = Problem)))]
pub async fn park(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Decided>), Refusal> {
    let operator = known(&desk, &who, &id)?;
    let decided = operator.decide_left(&id, Fate::Park).await?;
    if !decided.changed {
        return Ok((StatusCode::ACCEPTED, Json(decided)));
    }
    let metrics = desk.metrics.of(&id.as_str().into());
    tokio::spawn(async move {
        let mut counted = 0;
        let count = |parked| {
            metrics.dead_lettered(Reason::Parked).inc_by(parked - counted);
            counted = parked;
        };
        if let Err(error) = operator.park(&id, count).await {
            tracing::warn!(workflow = id, error = %crate::observe::chain(&error), "parking was interrupted; ask for it again");
        }
    });
    Ok((StatusCode::ACCEPTED, Json(decided)))
}

/// An operator who asks about a workflow. What cannot be an id is none.
pub(super) fn known(desk: &Desk, who: &Who, id: &str) -> Result<Operator, Refusal> {
    let operator = desk.operator(who)?;
    if id.contains('\0') {
        return Err(operator.no_workflow(&id.replace('\0', "")).into());
    }
    Ok(operator)
}

/// What this process knows of it besides.
fn with_live(desk: &Desk, mut workflow: Workflow) -> Workflow {
    let Ok(api) = desk.api() else { return workflow };
    if let Some(refusal) = desk.readiness.refusal(&workflow.id).filter(|_| workflow.state == "running") {
        // Nobody decided it here, and nothing need be decided here to end it.
        (workflow.state, workflow.reason) = (WorkflowState::Halted.as_str().to_owned(), Some(refusal.reason));
        (workflow.changed_at, workflow.changed_by) = (refusal.since, "Kafka".to_owned());
    }
    workflow.kafka_lag_records = desk.metrics.kafka_lag_of(&workflow.id);
    workflow.live = if api.sends { api.history.live(&desk.metrics, &workflow.id) } else { None };
    if let Some((late, age)) = desk.metrics.ages_of(&workflow.id) {
        // Records that wait in Kafka count too.
        workflow.delivery_lag_seconds = workflow.delivery_lag_seconds.max(late);
        workflow.undelivered_age_seconds = workflow.undelivered_age_seconds.max(age);
    }
    workflow
}
