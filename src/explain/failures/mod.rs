//! The table of failures: what can go wrong, and what then happens in this workflow. Data, so that a test can hold every
//! guarantee to it.
//!
//! `receiver` has what the endpoint and the network do, `platform` what happens to the relay, Postgres and Kafka, `source`
//! what comes out of the topic.

mod platform;
mod receiver;
mod source;

use super::facts::Facts;
use super::fate::{Becomes, Repeat};

/// What can go wrong; the closed set that `explain` goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    ReceiverTimesOut,
    AnswerLost,
    Answers500,
    Answers503,
    Answers409,
    Answers410,
    Answers422,
    Answers429,
    AnswersRedirect,
    AnswersOther,
    ConnectionRefused,
    DnsFails,
    TlsFails,
    AddressBlocked,
    ReceiverDownForLong,
    LookupFails,
    RelayKilledBeforeSend,
    RelayKilledAfterSend,
    RollingRestart,
    PostgresDown,
    PostgresLosesCommits,
    KafkaDown,
    ConfigurationChanges,
    SourceRepeats,
    RecordUndecodable,
    RecordTooLarge,
    TopicRecreated,
    RecordsExpired,
}

impl Failure {
    pub const ALL: [Self; 28] = [
        Self::ReceiverTimesOut,
        Self::AnswerLost,
        Self::Answers500,
        Self::Answers503,
        Self::Answers409,
        Self::Answers410,
        Self::Answers422,
        Self::Answers429,
        Self::AnswersRedirect,
        Self::AnswersOther,
        Self::ConnectionRefused,
        Self::DnsFails,
        Self::TlsFails,
        Self::AddressBlocked,
        Self::ReceiverDownForLong,
        Self::LookupFails,
        Self::RelayKilledBeforeSend,
        Self::RelayKilledAfterSend,
        Self::RollingRestart,
        Self::PostgresDown,
        Self::PostgresLosesCommits,
        Self::KafkaDown,
        Self::ConfigurationChanges,
        Self::SourceRepeats,
        Self::RecordUndecodable,
        Self::RecordTooLarge,
        Self::TopicRecreated,
        Self::RecordsExpired,
    ];
}

/// One failure, and what happens.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub failure: Failure,
    pub when: String,
    pub then: String,
    pub event: Becomes,
    /// Whether the receiver can get a second request because of it.
    pub sent_again: Repeat,
    /// The key that decides it, as a JSON pointer within the workflow; empty where nothing in the workflow does.
    #[serde(skip)]
    pub decided_by: &'static str,
}

/// What one failure does, before it gets its name.
struct Happening {
    when: String,
    then: String,
    event: Becomes,
    sent_again: Repeat,
    decided_by: &'static str,
}

/// Every failure that can happen in this workflow.
pub fn table(facts: &Facts<'_>) -> Vec<Row> {
    Failure::ALL.into_iter().filter_map(|failure| row(failure, facts)).collect()
}

fn row(failure: Failure, facts: &Facts<'_>) -> Option<Row> {
    let Happening { when, then, event, sent_again, decided_by } = match failure {
        Failure::ReceiverTimesOut
        | Failure::AnswerLost
        | Failure::Answers500
        | Failure::Answers503
        | Failure::Answers409
        | Failure::Answers410
        | Failure::Answers422
        | Failure::Answers429
        | Failure::AnswersRedirect
        | Failure::AnswersOther
        | Failure::ConnectionRefused
        | Failure::DnsFails
        | Failure::TlsFails
        | Failure::AddressBlocked => receiver::one_attempt(failure, facts)?,
        Failure::ReceiverDownForLong => receiver::down_for_long(facts),
        Failure::LookupFails => receiver::lookup_fails(facts)?,
        Failure::RelayKilledBeforeSend => platform::killed_before_send(facts),
        Failure::RelayKilledAfterSend => platform::killed_after_send(facts),
        Failure::RollingRestart => platform::rolling_restart(facts),
        Failure::PostgresDown => platform::postgres_down(facts),
        Failure::PostgresLosesCommits => platform::postgres_loses_commits(facts),
        Failure::KafkaDown => platform::kafka_down(facts),
        Failure::ConfigurationChanges => platform::configuration_changes(facts),
        Failure::SourceRepeats => source::repeats(facts),
        Failure::RecordUndecodable => source::undecodable(facts),
        Failure::RecordTooLarge => source::too_large(facts),
        Failure::TopicRecreated => source::topic_recreated(facts),
        Failure::RecordsExpired => source::records_expired(facts),
    };
    Some(Row { failure, when, then, event, sent_again, decided_by })
}

#[cfg(test)]
mod tests;
