//! How the API says no: one shape for all errors, `{"error": {"code", "message", "retryable", "details"}}`.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::observe::chain;
use crate::operate::{self, Kind};

/// The code of an answer about a workflow that nobody knows.
pub const UNKNOWN_WORKFLOW: &str = "unknown_workflow";

/// Codes of what stands in the way now and not for ever.
const PASSING: [&str; 2] = ["key_active", "verify_running"];

/// Why something was not done.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    pub error: Details,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Details {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    pub details: Value,
}

/// An answer that is a no.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
    details: Value,
}

impl Refusal {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), details: Value::Object(serde_json::Map::new()) }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        // What is under way is over some time.
        let retryable = self.status == StatusCode::SERVICE_UNAVAILABLE || PASSING.contains(&self.code);
        let error = Details { code: self.code.to_owned(), message: self.message, retryable, details: self.details };
        (self.status, Json(Problem { error })).into_response()
    }
}

impl From<operate::Error> for Refusal {
    fn from(error: operate::Error) -> Self {
        let (status, code) = match error.kind() {
            Kind::NoWorkflow => (StatusCode::NOT_FOUND, UNKNOWN_WORKFLOW),
            Kind::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            Kind::Invalid => (StatusCode::BAD_REQUEST, "invalid_request"),
            Kind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large"),
            Kind::Conflict(code) => (StatusCode::CONFLICT, code),
            Kind::Unavailable => {
                tracing::warn!(error = %chain(&error), "the API could not do what it was asked for");
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
            }
        };
        let details = match &error {
            operate::Error::Met { place, state, .. } => {
                serde_json::json!({"id": place.to_string(), "state": state})
            }
            _ => Value::Object(serde_json::Map::new()),
        };
        Self { details, ..Self::new(status, code, chain(&error)) }
    }
}

macro_rules! refused_by_axum {
    ($($rejection:ident),+) => {
        $(impl From<$rejection> for Refusal {
            fn from(rejection: $rejection) -> Self {
                let code = match rejection.status() {
                    StatusCode::PAYLOAD_TOO_LARGE => "payload_too_large",
                    StatusCode::UNSUPPORTED_MEDIA_TYPE => "unsupported_media_type",
                    _ => return Self::invalid(rejection.body_text()),
                };
                Self::new(rejection.status(), code, rejection.body_text())
            }
        })+
    };
}

refused_by_axum!(JsonRejection, PathRejection, QueryRejection);

pub async fn no_such_path(uri: Uri) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "not_found", format!("nothing is at {}", uri.path()))
}

pub async fn no_api() -> Refusal {
    let message = "this process answers only /healthz, /readyz and /metrics: it runs without the role `admin`";
    Refusal::new(StatusCode::NOT_FOUND, "not_found", message.to_owned())
}

pub async fn no_such_method(method: Method, uri: Uri) -> Refusal {
    let message = format!("{method} is not for {}", uri.path());
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}
