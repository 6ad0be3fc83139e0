//! What comes out of the topic: changes that the source repeats, records that cannot be read, topics that are not the same.

use super::Happening;
use crate::config::raw_workflow::UniqueConflict;
use crate::config::shown::{shown_duration, shown_size};
use crate::config::{OnInvalid, OnOffsetLoss};
use crate::explain::facts::Facts;
use crate::explain::fate::{Becomes, Repeat};

pub fn repeats(facts: &Facts<'_>) -> Happening {
    let when = "the source publishes a change again, at another offset".to_owned();
    let of_place = facts.key.is_coordinates();
    let (delivered, sent_again) = if of_place {
        (
            "delivered as an event of its own: its key is made of its place in Kafka, so nothing shows that it is a copy",
            Repeat::OtherKey,
        )
    } else {
        ("delivered again with the same key, for the receiver to drop", Repeat::SameKey)
    };
    let happening =
        |then, event, sent_again, decided_by| Happening { when: when.clone(), then, event, sent_again, decided_by };
    if let Some(ttl) = facts.deduplication_ttl().filter(|_| !of_place) {
        let then = format!("suppressed and counted within {}; later it is {delivered}", shown_duration(ttl));
        return happening(then, Becomes::Suppressed, Repeat::No, "/delivery/deduplication");
    }
    if let Some(unique) = &facts.raw.delivery.unique {
        let conflict = unique.on_conflict.or(unique.on_conflict_camel).unwrap_or(UniqueConflict::Reject);
        let (then, event) = match conflict {
            UniqueConflict::Ignore => ("dropped and counted", Becomes::Suppressed),
            UniqueConflict::Reject => ("a dead letter `duplicate` with the first one's id", Becomes::DeadLetter),
            UniqueConflict::Replace | UniqueConflict::ReplaceExceptSchedule => (
                "put in the place of the first one, if that still waits, as a new event with a new key",
                Becomes::Delivered,
            ),
        };
        let then = format!("where `unique` finds a conflict: {then}; else {delivered}");
        return happening(then, event, sent_again, "/delivery/unique");
    }
    happening(delivered.to_owned(), Becomes::Delivered, sent_again, "")
}

pub fn undecodable(facts: &Facts<'_>) -> Happening {
    let when = "a record cannot be decoded, filtered or transformed".to_owned();
    invalid(facts, when, "invalid")
}

pub fn too_large(facts: &Facts<'_>) -> Happening {
    let most = shown_size(facts.workflow.source.max_bytes as u64);
    invalid(facts, format!("a record is larger than {most} (maxBytes)"), "too_large")
}

fn invalid(facts: &Facts<'_>, when: String, reason: &str) -> Happening {
    let (then, event) = match facts.workflow.source.on_invalid {
        OnInvalid::DeadLetter => (
            format!("dead letter `{reason}` with the record's bytes, key and headers; its partition goes on"),
            Becomes::DeadLetter,
        ),
        OnInvalid::Halt => (
            "the workflow stops reading there (onInvalid: halt) and still delivers what it has read; a mended \
             configuration and `oncebox resume`, or `oncebox offsets set`, end it"
                .to_owned(),
            Becomes::Waits,
        ),
    };
    Happening { when, then, event, sent_again: Repeat::No, decided_by: "/source/onInvalid" }
}

pub fn topic_recreated(facts: &Facts<'_>) -> Happening {
    let keys = if facts.key.is_coordinates() { Repeat::OtherKey } else { Repeat::SameKey };
    let (then, event, sent_again) = match facts.workflow.source.on_offset_loss {
        OnOffsetLoss::Halt => (
            "noticed by the topic's id: the workflow stops reading (onOffsetLoss: halt) and still delivers what it has \
             read; `oncebox offsets set` says where to go on",
            Becomes::Waits,
            Repeat::No,
        ),
        OnOffsetLoss::Earliest => (
            "noticed by the topic's id: the gap is recorded and the new topic is read from its beginning; changes that \
             were published into it again are delivered again",
            Becomes::ReadAgain,
            keys,
        ),
        OnOffsetLoss::Latest => (
            "noticed by the topic's id: the gap is recorded and the new topic is read from its end; what stands in it \
             already is not delivered",
            Becomes::Lost,
            Repeat::No,
        ),
    };
    let when = "a topic is deleted and created again".to_owned();
    Happening { when, then: then.to_owned(), event, sent_again, decided_by: "/source/onOffsetLoss" }
}

pub fn records_expired(facts: &Facts<'_>) -> Happening {
    let (then, event) = match facts.workflow.source.on_offset_loss {
        OnOffsetLoss::Halt => (
            "the workflow stops reading (onOffsetLoss: halt), the gap is recorded, and `oncebox offsets set` says where \
             to go on; watch oncebox_kafka_retention_headroom_seconds",
            Becomes::Waits,
        ),
        OnOffsetLoss::Earliest => (
            "those records are lost; the gap is recorded and reading goes on at the oldest that is left",
            Becomes::Lost,
        ),
        OnOffsetLoss::Latest => {
            ("those records are lost, and all that wait in the topic; the gap is recorded", Becomes::Lost)
        }
    };
    let when = "Kafka deletes records before they are read".to_owned();
    Happening { when, then: then.to_owned(), event, sent_again: Repeat::No, decided_by: "/source/onOffsetLoss" }
}
