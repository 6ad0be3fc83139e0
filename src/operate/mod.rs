//! What operators see and decide. Enters: a question or a wish, and who has it. Leaves: an answer, or a change that is on record.
//!
//! The HTTP API and the command line both come here, so that both say and do the same, word for word.
//!
//! Files: `workflows` (where they stand; pause, resume, drain, park), `events` and `listing` (one by one, and which there are), `letters` (dead letters and their replays),
//! `offsets` (where workflows stand in Kafka, and the proof that nothing was lost), `submit` (events that callers give), `running` (what a
//! new configuration is compared with).

pub mod events;
pub mod letters;
mod listing;
pub mod offsets;
pub mod running;
pub mod submit;
pub mod workflows;

use std::sync::Arc;

use crate::config::shape::closest;
use crate::config::{Kafka, Workflow};
use crate::dead_letter;
use crate::event::Place;
use crate::outbox::{self, Database};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Outbox(#[from] outbox::Error),
    #[error(transparent)]
    DeadLetter(#[from] dead_letter::Error),
    #[error("no workflow `{id}`{hint}")]
    NoWorkflow { id: String, hint: String },
    #[error("{0}")]
    NotFound(String),
    /// It cannot be done as things stand, and why.
    #[error("{message}")]
    Conflict { code: &'static str, message: String },
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    TooLarge(String),
    /// Another event is in the way.
    #[error("{message}")]
    Met { code: &'static str, message: String, place: Place, state: Option<String> },
    #[error("the event could not be stored")]
    Submit(#[source] Arc<outbox::Error>),
    #[error("{0}")]
    Unavailable(String),
    #[error("Kafka cannot be asked")]
    Kafka(#[from] rdkafka::error::KafkaError),
    #[error("Kafka cannot be asked about topics")]
    Topics(#[from] crate::ingest::native::DescribeError),
    #[error(transparent)]
    Verify(#[from] crate::verify::Error),
}

/// What kind of trouble an error is, for exit codes and statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    NoWorkflow,
    NotFound,
    Invalid,
    TooLarge,
    Conflict(&'static str),
    /// Postgres or Kafka does not answer as it should, or this process is busy: asking again may help.
    Unavailable,
}

impl Error {
    pub fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::Conflict { code, message: message.into() }
    }

    pub fn kind(&self) -> Kind {
        use dead_letter::Error as Letter;
        match self {
            Self::NoWorkflow { .. } => Kind::NoWorkflow,
            Self::NotFound(_) | Self::DeadLetter(Letter::NotFound(_)) => Kind::NotFound,
            Self::Invalid(_) => Kind::Invalid,
            Self::TooLarge(_) => Kind::TooLarge,
            Self::Conflict { code, .. } | Self::Met { code, .. } => Kind::Conflict(code),
            Self::Submit(error) if error.is_about_data() => Kind::Invalid,
            Self::DeadLetter(Letter::KeyActive { .. }) => Kind::Conflict("key_active"),
            Self::DeadLetter(Letter::NeedsForce { .. }) => Kind::Conflict("needs_force"),
            Self::DeadLetter(Letter::NoWorkflow(..)) => Kind::Conflict("workflow_removed"),
            Self::DeadLetter(
                Letter::MakesNothing(_)
                | Letter::StillInvalid(_)
                | Letter::TooLong(_)
                | Letter::Programs(_)
                | Letter::Rejects(_),
            ) => Kind::Conflict("still_invalid"),
            Self::Submit(_)
            | Self::Unavailable(_)
            | Self::DeadLetter(Letter::Busy(_))
            | Self::Kafka(_)
            | Self::Topics(_)
            | Self::Verify(_) => Kind::Unavailable,
            // What was asked for is no value that Postgres has, a time before all times for one.
            Self::Outbox(error) | Self::DeadLetter(Letter::Outbox(error)) => match error.sql_state() {
                Some(state) if state.code().starts_with("22") => Kind::Invalid,
                Some(_) | None => Kind::Unavailable,
            },
        }
    }
}

/// Somebody who asks, with what their wishes need.
#[derive(Clone)]
pub struct Operator {
    pub database: Database,
    pub kafka: Kafka,
    /// The workflows that are configured.
    pub workflows: Vec<Arc<Workflow>>,
    /// Whose name the audit shows.
    pub who: String,
}

impl Operator {
    /// The workflow of that id, if it is configured.
    pub fn configured(&self, id: &str) -> Option<&Arc<Workflow>> {
        self.workflows.iter().find(|workflow| *workflow.id == *id)
    }

    /// The id of a workflow that is configured, or that Postgres knows: one that was removed may be paused or resumed too.
    pub async fn known(&self, id: &str) -> Result<(), Error> {
        let is_known =
            self.configured(id).is_some() || outbox::workflow::states(&self.database, &[id]).await?.contains_key(id);
        if is_known { Ok(()) } else { Err(self.no_workflow(id)) }
    }

    /// Which ones there are, or which one may have been meant.
    pub fn no_workflow(&self, id: &str) -> Error {
        let known: Vec<&str> = self.workflows.iter().map(|workflow| &*workflow.id).collect();
        let hint = closest(id, &known).map(|near| format!(": did you mean `{near}`?"));
        let hint = hint.unwrap_or_else(|| format!("; there are: {}", known.join(", ")));
        Error::NoWorkflow { id: id.to_owned(), hint }
    }
}

/// One page of a list.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Where the next page begins: give it as `after`. Null when there is no other.
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::CursorId;

    #[test]
    fn a_process_that_is_busy_asks_for_another_try_and_a_record_that_takes_too_long_does_not() {
        let place = Place { cursor: CursorId(1), offset: 0, index: 0, generation: 0 };
        assert_eq!(Error::from(dead_letter::Error::Busy(place)).kind(), Kind::Unavailable);
        assert_eq!(Error::from(dead_letter::Error::TooLong(place)).kind(), Kind::Conflict("still_invalid"));
    }
}
