//! What this build offers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Json;
use crate::admin::answer::Problem;
use crate::config::Guarantee;

/// What this build offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Capabilities {
    pub version: String,
    pub guarantees: Vec<String>,
    /// none or key.
    pub ordering: Vec<String>,
    /// Changes that the source repeats are suppressed.
    pub deduplication: bool,
    pub uniqueness: Uniqueness,
}

/// How surely two events with one uniqueness key are told apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Uniqueness {
    /// strong: of two at the same time exactly one succeeds.
    pub strength: String,
    pub mechanism: String,
}

/// What this build offers.
#[utoipa::path(get, path = "/v1/capabilities", tag = "capabilities", responses(
    (status = 200, body = Capabilities), (status = 401, body = Problem), (status = 403, body = Problem)))]
pub async fn show() -> Json<Capabilities> {
    Json(Capabilities {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        guarantees: Guarantee::ALL.map(|guarantee| guarantee.as_str().to_owned()).to_vec(),
        ordering: vec!["none".to_owned(), "key".to_owned()],
        deduplication: true,
        uniqueness: Uniqueness {
            strength: "strong".to_owned(),
            mechanism: "a row for each key, locked in the transaction that stores the event".to_owned(),
        },
    })
}
