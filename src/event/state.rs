//! The closed sets that users see: why an event is dead, what was decided about a workflow.

use std::str::FromStr;

/// Why an event ends as a dead letter; the closed set of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Exhausted,
    Expired,
    Rejected,
    Invalid,
    Duplicate,
    InDoubt,
    TooLarge,
    Parked,
}

impl Reason {
    pub const ALL: [Self; 8] = [
        Self::Exhausted,
        Self::Expired,
        Self::Rejected,
        Self::Invalid,
        Self::Duplicate,
        Self::InDoubt,
        Self::TooLarge,
        Self::Parked,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Expired => "expired",
            Self::Rejected => "rejected",
            Self::Invalid => "invalid",
            Self::Duplicate => "duplicate",
            Self::InDoubt => "in_doubt",
            Self::TooLarge => "too_large",
            Self::Parked => "parked",
        }
    }
}

/// What was decided about a workflow; the same for all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkflowState {
    Running,
    /// By an operator.
    Paused,
    /// By itself: the endpoint is gone or forbidden, or processes do not agree on what is promised.
    Suspended,
    /// By itself: its source lost records, or one cannot be read.
    Halted,
    /// No longer configured, with events left.
    Removed,
}

impl WorkflowState {
    pub const ALL: [Self; 5] = [Self::Running, Self::Paused, Self::Suspended, Self::Halted, Self::Removed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Suspended => "suspended",
            Self::Halted => "halted",
            Self::Removed => "removed",
        }
    }
}

/// What a workflow's stages heed. Reading and sending stop for reasons of their own, and neither ends the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Standing {
    /// What was decided about sending; never `Halted`.
    pub decided: WorkflowState,
    pub halted: bool,
}

impl Standing {
    pub const RUNNING: Self = Self { decided: WorkflowState::Running, halted: false };

    /// Whether records are read. A pause keeps reading: what comes in stays durable and waits.
    pub fn reads(self) -> bool {
        !self.halted && self.decided != WorkflowState::Removed
    }

    /// Whether events are sent. A halt of the source does not stop what was read before it.
    pub fn sends(self) -> bool {
        self.decided == WorkflowState::Running
    }

    /// The one state that people see.
    pub fn shown(self) -> WorkflowState {
        if self.halted { WorkflowState::Halted } else { self.decided }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a workflow state")]
pub struct UnknownState(String);

impl FromStr for WorkflowState {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| UnknownState(text.to_owned()))
    }
}
