//! Every guarantee, held to the table.

use super::*;
use crate::config::sample::EXACTLY_ONCE;
use crate::explain::facts::with_facts;

const AT_MOST_ONCE: &str = "    delivery: {guarantee: at-most-once}\n";
const AT_LEAST_ONCE: &str = "    delivery: {guarantee: at-least-once}\n";
const IDEMPOTENT_KEYS: &str = "    delivery: {guarantee: idempotent-keys}\n";
const STORED_AT_LEAST_ONCE: &str = "    delivery: {guarantee: at-least-once, mechanism: transactional-outbox}\n";
const STORED_KEYS: &str = "    delivery: {guarantee: idempotent-keys, mechanism: transactional-outbox}\n";
const HOLD: &str = "    delivery: {guarantee: exactly-once, onInDoubt: hold}\n";
const ASK: &str = "    delivery: {guarantee: exactly-once, onInDoubt: ask}
    endpoint: {lookup: {url: \"https://erp.example.com/{idempotencyKey}\", processed: [200], notProcessed: [404]}}\n";

const ALL: [&str; 8] =
    [AT_MOST_ONCE, AT_LEAST_ONCE, IDEMPOTENT_KEYS, STORED_AT_LEAST_ONCE, STORED_KEYS, EXACTLY_ONCE, HOLD, ASK];

fn find(more: &str, failure: Failure) -> Row {
    with_facts(more, |facts| row(failure, facts).unwrap_or_else(|| panic!("{failure:?} can happen in {more}")))
}

fn fate(more: &str, failure: Failure) -> (Becomes, Repeat) {
    let row = find(more, failure);
    (row.event, row.sent_again)
}

/// After which an attempt's outcome is unknown.
const DOUBTFUL: [Failure; 4] =
    [Failure::ReceiverTimesOut, Failure::AnswerLost, Failure::Answers500, Failure::RelayKilledAfterSend];

#[test]
fn every_failure_is_explained_in_every_workflow() {
    for more in ALL {
        let rows = with_facts(more, table);
        let missing = Failure::ALL.iter().filter(|failure| rows.iter().all(|row| row.failure != **failure)).count();
        assert_eq!(missing, usize::from(more != ASK), "only the lookup is not asked everywhere: {more}");
        assert!(rows.iter().all(|row| !row.when.is_empty() && !row.then.is_empty()));
    }
}

#[test]
fn at_most_once_never_sends_again_by_itself() {
    for row in with_facts(AT_MOST_ONCE, table) {
        let repeats = matches!(row.sent_again, Repeat::SameKey | Repeat::IfNotProcessed);
        // The promise's own condition: Postgres keeps what it committed.
        assert_eq!(repeats, row.failure == Failure::PostgresLosesCommits, "{row:?}");
    }
    for failure in [Failure::ReceiverTimesOut, Failure::AnswerLost, Failure::RelayKilledAfterSend] {
        let row = find(AT_MOST_ONCE, failure);
        assert!(row.event == Becomes::DeadLetter && row.then.contains("in_doubt"), "{row:?}");
    }
    for failure in [Failure::Answers409, Failure::Answers422, Failure::Answers429, Failure::Answers500] {
        let row = find(AT_MOST_ONCE, failure);
        assert!(row.event == Becomes::DeadLetter && row.then.contains("rejected"), "{row:?}");
    }
    assert!(find(AT_MOST_ONCE, Failure::Answers410).then.contains("suspends itself"));
}

#[test]
fn what_surely_never_left_is_tried_again_under_every_guarantee_and_seen_once() {
    for more in ALL {
        for failure in [Failure::ConnectionRefused, Failure::DnsFails, Failure::TlsFails] {
            assert_eq!(fate(more, failure), (Becomes::Retried, Repeat::No), "{failure:?} in {more}");
        }
        assert_eq!(fate(more, Failure::AddressBlocked), (Becomes::Waits, Repeat::No));
    }
}

#[test]
fn what_is_in_doubt_is_sent_again_asked_about_or_held_as_the_workflow_says() {
    for failure in DOUBTFUL {
        for more in [EXACTLY_ONCE, STORED_AT_LEAST_ONCE, STORED_KEYS] {
            assert_eq!(fate(more, failure), (Becomes::Retried, Repeat::SameKey), "{failure:?}");
            assert!(find(more, failure).then.contains("the same bytes"), "{failure:?}");
        }
        assert_eq!(fate(ASK, failure), (Becomes::Asked, Repeat::IfNotProcessed), "{failure:?}");
        assert_eq!(fate(HOLD, failure), (Becomes::Held, Repeat::ByOperator), "{failure:?}");
    }
    let asked = find(ASK, Failure::AnswerLost).then;
    assert!(asked.contains("200 settles it") && asked.contains("404 sends it again"), "{asked}");
}

#[test]
fn the_direct_path_stores_what_fails_and_reads_again_what_a_crash_left() {
    for more in [AT_LEAST_ONCE, IDEMPOTENT_KEYS] {
        let failed = find(more, Failure::Answers500);
        assert!(failed.then.contains("stored in the outbox as `retryable`"), "{failed:?}");
        assert_eq!(fate(more, Failure::RelayKilledAfterSend), (Becomes::ReadAgain, Repeat::SameKey));
        assert_eq!(fate(more, Failure::RelayKilledBeforeSend), (Becomes::ReadAgain, Repeat::No));
        assert!(find(more, Failure::PostgresDown).then.contains("wait in memory"));
        assert!(find(more, Failure::ConfigurationChanges).then.contains("made anew"));
        assert_eq!(find(more, Failure::PostgresLosesCommits).event, Becomes::ReadAgain, "from the last copy");
    }
    let stored = find(STORED_KEYS, Failure::ConfigurationChanges).then;
    assert!(!stored.contains("made anew"), "bytes in the outbox are fixed: {stored}");
}

#[test]
fn answers_follow_the_workflows_own_lists() {
    let more = "    delivery: {guarantee: exactly-once}\n    endpoint: {answers: {rejected: [500], inDoubt: []}}\n";
    assert_eq!(fate(more, Failure::Answers500), (Becomes::DeadLetter, Repeat::ByOperator));
    assert_eq!(fate(more, Failure::Answers422), (Becomes::Retried, Repeat::SameKey));
}

#[test]
fn one_attempt_alone_ends_in_a_dead_letter() {
    let more = "    delivery: {guarantee: exactly-once, retries: {enabled: false}}\n";
    assert_eq!(fate(more, Failure::AnswersOther), (Becomes::DeadLetter, Repeat::ByOperator));
    assert!(find(more, Failure::ReceiverDownForLong).then.starts_with("one attempt"));
    assert!(find(more, Failure::RelayKilledAfterSend).then.contains("exhausted"), "the attempt in doubt was the one");
}

#[test]
fn a_repeated_change_is_told_from_a_new_one_only_by_the_sources_own_identifiers() {
    let debezium = |more: &str| format!("    source: {{format: debezium}}\n{more}");
    assert_eq!(fate(EXACTLY_ONCE, Failure::SourceRepeats), (Becomes::Delivered, Repeat::OtherKey));
    assert_eq!(fate(&debezium(EXACTLY_ONCE), Failure::SourceRepeats), (Becomes::Delivered, Repeat::SameKey));
    assert_eq!(fate(&debezium(IDEMPOTENT_KEYS), Failure::SourceRepeats), (Becomes::Delivered, Repeat::SameKey));
    let window = "    delivery: {guarantee: exactly-once, deduplication: {keyFields: [database, table, primaryKey], ttl: 30d}}\n";
    assert_eq!(fate(&debezium(window), Failure::SourceRepeats), (Becomes::Suppressed, Repeat::No));
    assert!(find(&debezium(window), Failure::SourceRepeats).then.contains("within 30d"));
}

#[test]
fn a_source_that_fails_does_what_the_workflow_says() {
    for (more, invalid, recreated) in [
        (EXACTLY_ONCE.to_owned(), Becomes::DeadLetter, Becomes::Waits),
        (
            format!("    source: {{onInvalid: halt, onOffsetLoss: earliest}}\n{EXACTLY_ONCE}"),
            Becomes::Waits,
            Becomes::ReadAgain,
        ),
        (format!("    source: {{onOffsetLoss: latest}}\n{EXACTLY_ONCE}"), Becomes::DeadLetter, Becomes::Lost),
    ] {
        assert_eq!(find(&more, Failure::RecordUndecodable).event, invalid, "{more}");
        assert_eq!(find(&more, Failure::TopicRecreated).event, recreated, "{more}");
    }
}
