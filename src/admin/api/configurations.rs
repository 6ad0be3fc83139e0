//! What runs, as it is stored.

use axum::Extension;
use axum::extract::State;

use super::Json;
use crate::admin::Desk;
use crate::admin::answer::{Problem, Refusal};
use crate::admin::guard::Who;
use crate::operate::running::Running;

/// The workflows that run, as they were written: references are not resolved. What `oncebox validate --against` compares with.
#[utoipa::path(get, path = "/v1/configurations", tag = "workflows", responses(
    (status = 200, body = Vec<Running>), (status = 401, body = Problem), (status = 403, body = Problem),
    (status = 409, body = Problem), (status = 503, body = Problem)))]
pub async fn list(State(desk): State<Desk>, Extension(who): Extension<Who>) -> Result<Json<Vec<Running>>, Refusal> {
    Ok(Json(desk.operator(&who)?.running().await?))
}
