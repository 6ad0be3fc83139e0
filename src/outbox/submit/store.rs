//! One transaction: places for some events, the keys that callers gave, the keys that make events the same, then the events.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use deadpool_postgres::Transaction;
use tokio_postgres::Row;

use super::{Stored, Submission, Submitted, TOPIC};
use crate::event::{CursorId, Fingerprint, Place};
use crate::outbox::cursor::{self, Start, TopicName};
use crate::outbox::sql::{Parameter, bytes_list, float8s, int4s, int8s, texts};
use crate::outbox::unique::{self, Candidate, Decided, Fate, Standing};
use crate::outbox::{Database, Error, Purpose};

/// Stores events whose callers gave no key twice. `known`: the cursors of workflows that are there.
pub async fn store(
    database: &Database,
    submissions: &[Submission],
    known: &mut HashMap<Arc<str>, CursorId>,
) -> Result<Vec<Submitted>, Error> {
    for one in submissions {
        if !known.contains_key(&one.workflow) {
            let name = TopicName { workflow: &one.workflow, cluster: "", topic: TOPIC, topic_id: TOPIC, direct: false };
            let start = Start { id: CursorId::of(&one.workflow, "", TOPIC, 0), partition: 0, offset: 0 };
            cursor::add(database, name, &[start]).await?;
            // A workflow that was renamed has the one of its former name.
            let cursors = cursor::of_topic(database, &one.workflow, "", TOPIC).await?;
            let cursor = cursors.first().ok_or(Error::NoCursor)?.id;
            known.insert(Arc::clone(&one.workflow), cursor);
        }
    }
    let work = async |transaction: &Transaction<'_>| {
        Writing { database, transaction, submissions, cursors: known }.run().await
    };
    let stored = database.transaction(Purpose::Append, work).await;
    if let Err(Error::NoCursor) = stored {
        // Lost in a failover: made anew the next time.
        known.clear();
    }
    stored
}

/// One transaction.
struct Writing<'a> {
    database: &'a Database,
    transaction: &'a Transaction<'a>,
    submissions: &'a [Submission],
    cursors: &'a HashMap<Arc<str>, CursorId>,
}

impl Writing<'_> {
    async fn run(&self) -> Result<Vec<Submitted>, Error> {
        let (places, standing) = self.take_places().await?;
        let mut outcome: Vec<Option<Submitted>> = vec![None; self.submissions.len()];
        self.take_keys(&places, &mut outcome).await?;
        let decided = self.take_unique(&places, &standing, &mut outcome).await?;
        self.give_keys_back(&places, &decided, &outcome).await?;
        let mut stored = self.store(&places, &standing, &decided, &outcome).await?;
        let all = outcome.into_iter().zip(places).map(|(found, place)| match found {
            Some(found) => Ok(found),
            None => stored.remove(&place).map(Submitted::Stored).ok_or(Error::NoCursor),
        });
        all.collect()
    }

    async fn query(&self, file: &'static str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        let text = self.database.schema.text(file);
        self.transaction.query_typed(&text, parameters).await.map_err(|source| Error::statement(file, source))
    }

    /// A place for each, and where the cursors stand then.
    async fn take_places(&self) -> Result<(Vec<Place>, Vec<Standing>), Error> {
        let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
        for one in self.submissions {
            let cursor = self.cursors.get(&one.workflow).ok_or(Error::NoCursor)?;
            *counts.entry(cursor.0).or_default() += 1;
        }
        let cursors: Vec<i64> = counts.keys().copied().collect();
        let events: Vec<i64> = counts.values().copied().collect();
        let parameters = [int8s(&cursors), int8s(&events)];
        let rows = self.query(include_str!("../../../sql/submit/take_offsets.sql"), &parameters).await?;
        let mut next: HashMap<i64, i64> = rows.iter().map(|row| (row.get("id"), row.get("first_offset"))).collect();
        let standing = rows.iter().map(|row| Standing {
            cursor: CursorId(row.get("id")),
            epoch: 0,
            expected: row.get("next_offset"),
        });
        let standing = standing.collect();
        let mut places = Vec::new();
        for one in self.submissions {
            let cursor = *self.cursors.get(&one.workflow).ok_or(Error::NoCursor)?;
            // A workflow that lives on under another name takes nothing more under this one.
            let Some(offset) = next.get_mut(&cursor.0) else { return Err(Error::NoCursor) };
            places.push(Place { cursor, offset: *offset, index: 0, generation: 0 });
            *offset += 1;
        }
        Ok((places, standing))
    }

    async fn take_keys(&self, places: &[Place], outcome: &mut [Option<Submitted>]) -> Result<(), Error> {
        let own: Vec<(usize, &Submission, &(Fingerprint, Fingerprint))> =
            self.submissions.iter().enumerate().filter_map(|(at, one)| Some((at, one, one.own.as_ref()?))).collect();
        if own.is_empty() {
            return Ok(());
        }
        let workflows: Vec<&str> = own.iter().map(|(_, one, _)| &*one.workflow).collect();
        let keys: Vec<&[u8]> = own.iter().map(|(_, _, (key, _))| key.as_slice()).collect();
        let digests: Vec<&[u8]> = own.iter().map(|(_, _, (_, digest))| digest.as_slice()).collect();
        let cursors: Vec<i64> = own.iter().map(|(at, ..)| places[*at].cursor.0).collect();
        let offsets: Vec<i64> = own.iter().map(|(at, ..)| places[*at].offset).collect();
        let seconds: Vec<f64> = own.iter().map(|(_, one, _)| one.kept.as_secs_f64()).collect();
        let parameters = [
            texts(&workflows),
            bytes_list(&keys),
            bytes_list(&digests),
            int8s(&cursors),
            int8s(&offsets),
            float8s(&seconds),
        ];
        for row in self.query(include_str!("../../../sql/submit/take_keys.sql"), &parameters).await? {
            let asked = (CursorId(row.get("cursor")), row.get::<_, i64>("record_offset"));
            let Some(at) = places.iter().position(|place| (place.cursor, place.offset) == asked) else { continue };
            let (cursor, offset) = (CursorId(row.get("known_cursor")), row.get("known_offset"));
            let place = Place { cursor, offset, index: 0, generation: 0 };
            let is_same: Option<bool> = row.get("is_same");
            outcome[at] = Some(match is_same {
                Some(true) => Submitted::Deduplicated(place),
                Some(false) | None => Submitted::KeyReused(place),
            });
        }
        Ok(())
    }

    async fn take_unique(
        &self,
        places: &[Place],
        standing: &[Standing],
        outcome: &mut [Option<Submitted>],
    ) -> Result<Vec<Option<Decided>>, Error> {
        let mut decided = vec![None; self.submissions.len()];
        let (mut at, mut candidates) = (Vec::new(), Vec::new());
        for (index, one) in self.submissions.iter().enumerate().filter(|(index, _)| outcome[*index].is_none()) {
            let Some((policy, fingerprint)) = &one.unique else { continue };
            at.push(index);
            let Place { cursor, offset, .. } = places[index];
            candidates.push(Candidate {
                workflow: &one.workflow,
                fingerprint,
                cursor,
                offset,
                index: 0,
                policy,
                kept: one.kept,
                due: one.due.map(|due| due.as_millisecond() as f64 / 1000.0),
                keeps_order: false,
            });
        }
        if candidates.is_empty() {
            return Ok(decided);
        }
        let found = unique::take(self.database, self.transaction, None, standing, &candidates).await?;
        for (index, found) in at.into_iter().zip(found) {
            outcome[index] = match &found {
                Some(Decided { fate: Fate::Suppressed, other: Some((place, _)), .. }) => {
                    Some(Submitted::Deduplicated(*place))
                }
                Some(Decided { fate: Fate::Duplicate, other: Some((place, state)), .. }) => {
                    Some(Submitted::Duplicate { place: *place, state: state.clone() })
                }
                Some(_) | None => None,
            };
            decided[index] = found;
        }
        Ok(decided)
    }

    /// A key that was taken for an event which is not stored after all would point nowhere.
    async fn give_keys_back(
        &self,
        places: &[Place],
        decided: &[Option<Decided>],
        outcome: &[Option<Submitted>],
    ) -> Result<(), Error> {
        let refused = |at: &usize| decided[*at].is_some() && outcome[*at].is_some();
        let own: Vec<(usize, &Fingerprint)> = (0..self.submissions.len())
            .filter(refused)
            .filter_map(|at| Some((at, &self.submissions[at].own.as_ref()?.0)))
            .collect();
        if own.is_empty() {
            return Ok(());
        }
        let workflows: Vec<&str> = own.iter().map(|(at, _)| &*self.submissions[*at].workflow).collect();
        let keys: Vec<&[u8]> = own.iter().map(|(_, key)| key.as_slice()).collect();
        let cursors: Vec<i64> = own.iter().map(|(at, _)| places[*at].cursor.0).collect();
        let offsets: Vec<i64> = own.iter().map(|(at, _)| places[*at].offset).collect();
        let parameters = [texts(&workflows), bytes_list(&keys), int8s(&cursors), int8s(&offsets)];
        self.query(include_str!("../../../sql/submit/forget_keys.sql"), &parameters).await?;
        Ok(())
    }

    /// Stores those that nothing was found against, and answers as what.
    async fn store(
        &self,
        places: &[Place],
        standing: &[Standing],
        decided: &[Option<Decided>],
        outcome: &[Option<Submitted>],
    ) -> Result<HashMap<Place, Stored>, Error> {
        let all = self.submissions.iter().zip(places).zip(decided).zip(outcome);
        let stored: Vec<(&Submission, &Place, &Option<Decided>)> = all
            .filter(|(_, found)| found.is_none())
            .map(|(((one, place), decided), _)| (one, place, decided))
            .collect();
        if stored.is_empty() {
            return Ok(HashMap::new());
        }
        let waits = |decided: &Option<Decided>| -> Option<Place> {
            let waits = decided.as_ref().filter(|decided| decided.fate == Fate::Waits)?;
            waits.other.as_ref().map(|(place, _)| *place)
        };
        let due = |one: &Submission, decided: &Option<Decided>| {
            let kept = decided.as_ref().and_then(|decided| decided.due);
            kept.or_else(|| one.due.map(|due| due.as_millisecond() as f64 / 1000.0))
        };
        let cursors: Vec<i64> = stored.iter().map(|(_, place, _)| place.cursor.0).collect();
        let offsets: Vec<i64> = stored.iter().map(|(_, place, _)| place.offset).collect();
        let keys: Vec<&str> = stored.iter().map(|(one, ..)| one.key.as_str()).collect();
        let types: Vec<&str> = stored.iter().map(|(one, ..)| one.event_type.as_str()).collect();
        let content_types: Vec<&str> = stored.iter().map(|(one, ..)| one.content_type).collect();
        let traceparents: Vec<Option<&str>> = stored.iter().map(|(one, ..)| one.traceparent.as_deref()).collect();
        let source_ats: Vec<i64> = stored.iter().map(|(one, ..)| one.source_at).collect();
        let versions: Vec<i64> = stored.iter().map(|(one, ..)| one.version).collect();
        let bodies: Vec<&[u8]> = stored.iter().map(|(one, ..)| one.body.as_slice()).collect();
        let lanes: Vec<Option<i64>> = stored.iter().map(|(one, ..)| one.lane.map(|lane| lane.0)).collect();
        // Whoever takes the place of another keeps its time.
        let delay = |one: &Submission, decided: &Option<Decided>| match decided.as_ref().and_then(|decided| decided.due)
        {
            Some(_) => 0.0,
            None => one.delay.as_secs_f64(),
        };
        let delays: Vec<f64> = stored.iter().map(|(one, _, decided)| delay(one, decided)).collect();
        let dues: Vec<Option<f64>> = stored.iter().map(|(one, _, decided)| due(one, decided)).collect();
        let fates: Vec<Option<&str>> =
            stored.iter().map(|(_, _, decided)| decided.as_ref().map(|decided| decided.fate.as_str())).collect();
        let waiting: Vec<Option<Place>> = stored.iter().map(|(_, _, decided)| waits(decided)).collect();
        let waits_cursors: Vec<Option<i64>> = waiting.iter().map(|place| place.map(|place| place.cursor.0)).collect();
        let waits_offsets: Vec<Option<i64>> = waiting.iter().map(|place| place.map(|place| place.offset)).collect();
        let waits_indexes: Vec<Option<i32>> = waiting.iter().map(|place| place.map(|place| place.index)).collect();
        let waits_generations: Vec<Option<i32>> =
            waiting.iter().map(|place| place.map(|place| place.generation)).collect();
        let mut given: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for (one, ..) in &stored {
            *given.entry((&one.who, &one.workflow)).or_default() += 1;
        }
        let (who, to): (Vec<&str>, Vec<&str>) = given.keys().copied().unzip();
        let events: Vec<i64> = given.values().copied().collect();
        let standing_cursors: Vec<i64> = standing.iter().map(|one| one.cursor.0).collect();
        let standing_at: Vec<i64> = standing.iter().map(|one| one.expected).collect();
        let parameters = [
            int8s(&cursors),
            int8s(&offsets),
            texts(&keys),
            texts(&types),
            texts(&content_types),
            int8s(&source_ats),
            int8s(&versions),
            bytes_list(&bodies),
            int8s(&lanes),
            float8s(&dues),
            texts(&fates),
            int8s(&waits_cursors),
            int8s(&waits_offsets),
            int4s(&waits_indexes),
            int4s(&waits_generations),
            int8s(&standing_cursors),
            int8s(&standing_at),
            texts(&traceparents),
            float8s(&delays),
            texts(&who),
            texts(&to),
            int8s(&events),
        ];
        let rows = self.query(include_str!("../../../sql/submit/store.sql"), &parameters).await?;
        let as_stored = rows.iter().map(|row| {
            let (cursor, offset) = (CursorId(row.get("cursor")), row.get("record_offset"));
            let place = Place { cursor, offset, index: 0, generation: 0 };
            let (state, due, created_at) = (row.get("state"), row.get("due"), row.get("created_at"));
            (place, Stored { place, state, due, created_at })
        });
        Ok(as_stored.collect())
    }
}
