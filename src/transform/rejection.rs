//! Why a record makes no event although it should: what its dead letter says.

use super::unique;

/// Why a record makes no event although it should.
#[derive(Debug, thiserror::Error)]
pub enum Rejection {
    #[error("the record has {bytes} bytes, more than maxBytes ({most})")]
    TooLarge { bytes: usize, most: usize },
    #[error("the value is not valid JSON: {source}")]
    NotJson {
        #[source]
        source: serde_json::Error,
    },
    #[error("the value is nested deeper than {most} levels")]
    TooDeep { most: usize },
    #[error("the value is not UTF-8: {source}")]
    NotUtf8 {
        #[source]
        source: std::str::Utf8Error,
    },
    #[error("not a Debezium change: {missing}")]
    NotAChange { missing: &'static str },
    #[error("{program} failed: {message}")]
    Program { program: &'static str, message: String },
    #[error("the transform made more than {most} events of one record")]
    TooManyOutputs { most: usize },
    #[error("the transform made more than {most} bytes of one record")]
    OutputTooLarge { most: usize },
    #[error("the transform's output cannot be written as JSON")]
    OutputNotJson,
    #[error("eventType gave text with a NUL character")]
    EventTypeHasNul,
    #[error("eventType gave {what}, not text")]
    EventTypeNotText { what: &'static str },
    #[error(transparent)]
    NoUniqueKey(#[from] unique::NoKey),
    #[error("the process died {times} times while reading this record")]
    Deadly { times: i32 },
}
