//! Where workflows stand in Kafka, moving them, and the proof that nothing was lost.

use axum::Extension;
use axum::extract::State;

use super::workflows::known;
use super::{Json, Path};
use crate::admin::Desk;
use crate::admin::answer::{Problem, Refusal};
use crate::admin::guard::Who;
use crate::operate::Page;
use crate::operate::offsets::{Moves, Verified, Wanted};
use crate::outbox::cursor::Listed;

/// Where each partition stands.
#[utoipa::path(get, path = "/v1/workflows/{id}/offsets", tag = "workflows", params(("id" = String, Path)), responses(
    (status = 200, body = Page<Listed>), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem), (status = 503, body = Problem)))]
pub async fn show(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Path(id): Path<String>,
) -> Result<Json<Page<Listed>>, Refusal> {
    let items = known(&desk, &who, &id)?.offsets(&id).await?;
    Ok(Json(Page { items, next: None }))
}

/// Move the stored offsets, and end a halt.
#[utoipa::path(post, path = "/v1/workflows/{id}/offsets", tag = "workflows", params(("id" = String, Path)), request_body = Wanted,
    responses(
    (status = 200, body = Moves), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 413, body = Problem), (status = 415, body = Problem), (status = 503, body = Problem)))]
pub async fn set(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Path(id): Path<String>,
    Json(wanted): Json<Wanted>,
) -> Result<Json<Moves>, Refusal> {
    Ok(Json(known(&desk, &who, &id)?.set_offsets(&id, &wanted).await?))
}

/// What became of every record, and every gap by name. Takes as long as it takes to read what is stored.
#[utoipa::path(get, path = "/v1/workflows/{id}/verify", tag = "workflows", params(("id" = String, Path)), responses(
    (status = 200, body = Verified), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 503, body = Problem)))]
pub async fn verify(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Path(id): Path<String>,
) -> Result<Json<Verified>, Refusal> {
    Ok(Json(known(&desk, &who, &id)?.verify(&id, |_| {}).await?))
}
