//! Enters: events that have a uniqueness key, about to be stored. Leaves: what becomes of each.
//!
//! Runs in the transaction that stores them: the keys stay locked until it ends, so that of two events with one key, from whichever
//! process and over whichever way, one comes first. `prune` forgets keys; `cancel::sweep` lets those go that waited for
//! one being sent.

use std::time::Duration;

use deadpool_postgres::Transaction;
use jiff::Timestamp;

use super::batch::Batch;
use super::sql::{booleans, bytes_list, float8s, int4, int4s, int8, int8s, texts, timestamptz, uuid};
use super::{Database, Error, Purpose};
use crate::config::{UniqueConflict, UniquePolicy, UniqueState};
use crate::event::{CursorId, Draft, Fingerprint, Place, ProcessId};

/// What becomes of an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    pub fate: Fate,
    /// The event that it meets, and where that stands.
    pub other: Option<(Place, String)>,
    /// When the event that it replaces was due, in seconds since 1970.
    pub due: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Stored,
    /// Stored, and waits until the one that is being sent is settled.
    Waits,
    /// Not stored: ignored.
    Suppressed,
    /// Not stored: refused.
    Duplicate,
    /// Stored, and replaced by a later one of the same batch.
    Cancelled,
}

impl Fate {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Waits => "waits",
            Self::Suppressed => "suppressed",
            Self::Duplicate => "duplicate",
            Self::Cancelled => "cancelled",
        }
    }

    fn of(text: &str) -> Option<Self> {
        [Self::Stored, Self::Waits, Self::Suppressed, Self::Duplicate, Self::Cancelled]
            .into_iter()
            .find(|fate| fate.as_str() == text)
    }
}

/// An event with a key.
pub struct Candidate<'a> {
    pub workflow: &'a str,
    pub fingerprint: &'a Fingerprint,
    pub cursor: CursorId,
    pub offset: i64,
    pub index: i32,
    pub policy: &'a UniquePolicy,
    /// For how long the key is remembered at least.
    pub kept: Duration,
    /// When it is due by itself, in seconds since 1970; nothing: now.
    pub due: Option<f64>,
    pub keeps_order: bool,
}

/// Where the events' cursors must stand, and under which epoch.
pub struct Standing {
    pub cursor: CursorId,
    pub epoch: i64,
    pub expected: i64,
}

/// Decides about each, in their order. Nothing where a cursor does not stand where it should.
pub async fn take(
    database: &Database,
    transaction: &Transaction<'_>,
    process: Option<ProcessId>,
    standing: &[Standing],
    events: &[Candidate<'_>],
) -> Result<Vec<Option<Decided>>, Error> {
    let of = |value: fn(&Standing) -> i64| standing.iter().map(value).collect::<Vec<i64>>();
    let (cursors, epochs, expected) = (of(|s| s.cursor.0), of(|s| s.epoch), of(|s| s.expected));
    let workflows: Vec<&str> = events.iter().map(|e| e.workflow).collect();
    let fingerprints: Vec<&[u8]> = events.iter().map(|e| e.fingerprint.as_slice()).collect();
    let event_cursors: Vec<i64> = events.iter().map(|e| e.cursor.0).collect();
    let offsets: Vec<i64> = events.iter().map(|e| e.offset).collect();
    let indexes: Vec<i32> = events.iter().map(|e| e.index).collect();
    let states: Vec<String> = events.iter().map(|e| states(&e.policy.states)).collect();
    let periods: Vec<Option<&str>> = events.iter().map(|e| e.policy.period.as_deref()).collect();
    let conflicts: Vec<&str> = events.iter().map(|e| conflict(e.policy.on_conflict)).collect();
    let kept: Vec<f64> = events.iter().map(|e| e.kept.as_secs_f64()).collect();
    let dues: Vec<Option<f64>> = events.iter().map(|e| e.due).collect();
    let laned: Vec<bool> = events.iter().map(|e| e.keeps_order).collect();
    let parameters = [
        uuid(&process),
        int8s(&cursors),
        int8s(&epochs),
        int8s(&expected),
        texts(&workflows),
        bytes_list(&fingerprints),
        int8s(&event_cursors),
        int8s(&offsets),
        int4s(&indexes),
        texts(&states),
        texts(&periods),
        texts(&conflicts),
        float8s(&kept),
        float8s(&dues),
        booleans(&laned),
    ];
    let file = include_str!("../../sql/ingest/take_unique.sql");
    let text = database.schema.text(file);
    let rows = transaction.query_typed(&text, &parameters).await.map_err(|source| Error::statement(file, source))?;
    let mut decided = vec![None; events.len()];
    for row in &rows {
        let at = usize::try_from(row.get::<_, i32>("ordinal") - 1).unwrap_or(usize::MAX);
        let fate = row.get::<_, Option<&str>>("fate").and_then(Fate::of);
        if let (Some(slot), Some(fate)) = (decided.get_mut(at), fate) {
            let other = row.get::<_, Option<i64>>("other_cursor").map(|cursor| {
                let place = Place {
                    cursor: CursorId(cursor),
                    offset: row.get("other_offset"),
                    index: row.get("other_index"),
                    generation: row.get("other_generation"),
                };
                (place, row.get("other_state"))
            });
            *slot = Some(Decided { fate, other, due: row.get("due") });
        }
    }
    Ok(decided)
}

fn states(states: &[UniqueState]) -> String {
    let name = |state: &UniqueState| match state {
        UniqueState::Scheduled => "scheduled",
        UniqueState::Available => "available",
        UniqueState::Active => "active",
        UniqueState::Retryable => "retryable",
        UniqueState::Pending => "pending",
        UniqueState::Completed => "completed",
        UniqueState::Cancelled => "cancelled",
        UniqueState::Discarded => "discarded",
    };
    states.iter().map(name).collect::<Vec<&str>>().join(",")
}

fn conflict(conflict: UniqueConflict) -> &'static str {
    match conflict {
        UniqueConflict::Reject => "reject",
        UniqueConflict::Replace => "replace",
        UniqueConflict::ReplaceExceptSchedule => "replace_except_schedule",
        UniqueConflict::Ignore => "ignore",
    }
}

/// What was decided about each event of some batches, as columns; empty of decisions where no event has a key.
pub struct UniqueColumns {
    pub fates: Vec<Option<&'static str>>,
    pub waits_cursors: Vec<Option<i64>>,
    pub waits_offsets: Vec<Option<i64>>,
    pub waits_indexes: Vec<Option<i32>>,
    pub waits_generations: Vec<Option<i32>>,
    pub dues: Vec<Option<f64>>,
    pub said: Vec<Option<String>>,
}

impl UniqueColumns {
    /// `decided` has an entry for each event that has a key, in their order.
    pub fn of(batches: &[Batch], decided: Vec<Option<Decided>>) -> Self {
        let mut decided = decided.into_iter();
        let drafts = batches.iter().flat_map(|batch| &batch.drafts);
        let each: Vec<Option<Decided>> =
            drafts.map(|draft| draft.unique.and_then(|_| decided.next().flatten())).collect();
        let waits = |one: &Option<Decided>| -> Option<Place> {
            let one = one.as_ref().filter(|one| one.fate == Fate::Waits)?;
            one.other.as_ref().map(|(place, _)| *place)
        };
        let said = |one: &Option<Decided>| {
            let one = one.as_ref().filter(|one| one.fate == Fate::Duplicate)?;
            one.other.as_ref().map(|(place, state)| format!("the same as event {place}, which is {state}"))
        };
        Self {
            fates: each.iter().map(|one| one.as_ref().map(|one| one.fate.as_str())).collect(),
            waits_cursors: each.iter().map(|one| waits(one).map(|place| place.cursor.0)).collect(),
            waits_offsets: each.iter().map(|one| waits(one).map(|place| place.offset)).collect(),
            waits_indexes: each.iter().map(|one| waits(one).map(|place| place.index)).collect(),
            waits_generations: each.iter().map(|one| waits(one).map(|place| place.generation)).collect(),
            dues: each.iter().map(|one| one.as_ref().and_then(|one| one.due)).collect(),
            said: each.iter().map(said).collect(),
        }
    }
}

/// The events of batches that have a key, and where their cursors must stand.
pub fn candidates(batches: &[Batch]) -> (Vec<Standing>, Vec<Candidate<'_>>) {
    let standing = batches.iter().map(|batch| Standing {
        cursor: batch.holding.cursor,
        epoch: batch.holding.epoch,
        expected: batch.expected,
    });
    let mut events = Vec::new();
    for batch in batches {
        let workflow = &batch.holding.workflow;
        let Some(policy) = &workflow.delivery.unique else { continue };
        for draft in &batch.drafts {
            let Some(fingerprint) = &draft.unique else { continue };
            events.push(Candidate {
                workflow: &workflow.id,
                fingerprint,
                cursor: batch.holding.cursor,
                offset: draft.offset,
                index: draft.index,
                policy,
                kept: workflow.retention,
                due: due(draft, workflow.delivery.delay),
                keeps_order: draft.lane.is_some(),
            });
        }
    }
    (standing.collect(), events)
}

/// When an event is due that waits for its time; as `append.sql` has it.
fn due(draft: &Draft, delay: Duration) -> Option<f64> {
    let now = Timestamp::now().as_millisecond();
    let from = draft.record_at.unwrap_or(now).min(now);
    (!delay.is_zero()).then(|| from as f64 / 1000.0 + delay.as_secs_f64())
}

/// The last key that was looked at, by when its time was up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    expires_at: Timestamp,
    place: Place,
}

impl Mark {
    /// Before all of them.
    pub const START: Self = Self {
        expires_at: Timestamp::UNIX_EPOCH,
        place: Place { cursor: CursorId(i64::MIN), offset: i64::MIN, index: -1, generation: -1 },
    };
}

/// What a look at some keys came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pruned {
    pub forgotten: i64,
    pub looked_at: i64,
    /// Where the next look goes on.
    pub mark: Mark,
}

/// Looks at some keys whose time is up, behind the mark, and forgets those that nothing needs any more.
pub async fn prune(database: &Database, after: Mark, most: i64) -> Result<Pruned, Error> {
    let Mark { expires_at, place: Place { cursor: CursorId(cursor), offset, index, generation } } = after;
    let parameters =
        [int8(&most), timestamptz(&expires_at), int8(&cursor), int8(&offset), int4(&index), int4(&generation)];
    let file = include_str!("../../sql/admin/prune_unique.sql");
    let rows = database.query(Purpose::Admin, file, &parameters).await?;
    let Some(row) = rows.first() else { return Ok(Pruned { forgotten: 0, looked_at: 0, mark: after }) };
    let mark = row.get::<_, Option<Timestamp>>("expires_at").map_or(after, |expires_at| {
        let (cursor, offset) = (CursorId(row.get("cursor")), row.get("record_offset"));
        let place = Place { cursor, offset, index: row.get("event_index"), generation: row.get("generation") };
        Mark { expires_at, place }
    });
    Ok(Pruned { forgotten: row.get("forgotten"), looked_at: row.get("looked_at"), mark })
}
