//! Who changed what by hand. For the role `admin` only: `guard`.

use axum::Extension;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Json, Query};
use crate::admin::Desk;
use crate::admin::answer::{Problem, Refusal};
use crate::admin::guard::Who;
use crate::operate::audit::Entry;
use crate::operate::{Page, page_length};

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

/// Who changed what by hand, newest first. Needs the role `admin`.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", params(Listed), responses(
    (status = 200, body = Page<Entry>), (status = 400, body = Problem), (status = 401, body = Problem),
    (status = 403, body = Problem), (status = 503, body = Problem)))]
pub async fn list(
    State(desk): State<Desk>,
    Extension(who): Extension<Who>,
    Query(listed): Query<Listed>,
) -> Result<Json<Page<Entry>>, Refusal> {
    let limit = page_length(listed.limit)?;
    Ok(Json(desk.operator(&who)?.audit(listed.after.as_deref(), limit).await?))
}
