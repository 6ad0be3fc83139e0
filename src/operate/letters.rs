//! Dead letters as operators handle them: one by one, or many at a time as a replay that outlives the process.

use jiff::Timestamp;
use uuid::Uuid;

use super::{Error, Operator, Page};
use crate::dead_letter::job::{self, Order, Replay, Word};
use crate::dead_letter::{self, DeadLetter, Filter, Summary, Wish};
use crate::event::{Place, Reason};
use crate::outbox::{left, notify};

/// Slower than this nobody waits for the end.
const SLOWEST: f64 = 0.1;
const FASTEST: f64 = 100_000.0;

impl Operator {
    pub async fn dead_letters(
        &self,
        filter: &Filter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<Summary>, Error> {
        self.check(filter).await?;
        let after = after.map(mark).transpose()?;
        let asked = i64::try_from(limit).unwrap_or(i64::MAX);
        let items = dead_letter::list(&self.database, filter, after, asked).await?;
        let last = items.last().filter(|_| items.len() == limit);
        let next = last.map(|last| format!("{}/{}", last.created_at.as_microsecond(), last.id));
        Ok(Page { items, next })
    }

    pub async fn dead_letter(&self, place: Place) -> Result<DeadLetter, Error> {
        Ok(dead_letter::show(&self.database, place).await?)
    }

    pub async fn discard(&self, place: Place) -> Result<(), Error> {
        let workflow = dead_letter::discard(&self.database, place, &self.who).await?;
        let _ = notify::tell(&self.database, &workflow).await;
        Ok(())
    }

    /// Delivers one again. Answers the id of its first event, and how many there are.
    pub async fn replay(&self, place: Place, force: bool, new_key: bool) -> Result<(Place, i64), Error> {
        let letter = dead_letter::show(&self.database, place).await?;
        let Some(workflow) = self.configured(&letter.workflow) else {
            return Err(dead_letter::Error::NoWorkflow(place, letter.workflow).into());
        };
        self.check_sent(&letter.workflow).await?;
        let wish = Wish { who: self.who.clone(), force, new_key, job: None };
        let made = dead_letter::replay(&self.database, &letter, workflow, &wish).await?;
        let _ = notify::tell(&self.database, &workflow.id).await;
        Ok((Place { generation: place.generation + 1, ..place }, made))
    }

    /// How many a replay would have.
    pub async fn count_dead_letters(&self, filter: &Filter) -> Result<i64, Error> {
        self.check(filter).await?;
        Ok(job::count(&self.database, filter).await?)
    }

    /// Has many delivered again, by the processes that run.
    pub async fn replay_many(&self, order: &Order) -> Result<Replay, Error> {
        self.check(&order.filter).await?;
        if let Some(rate) = order.per_second.filter(|rate| !(SLOWEST..=FASTEST).contains(rate)) {
            return Err(Error::Invalid(format!("a rate of {rate} a second; allowed: {SLOWEST} to {FASTEST}")));
        }
        if let Some(id) = &order.filter.workflow
            && self.configured(id).is_none()
            && !left::is_run(&self.database, id).await?
        {
            let message =
                format!("no process runs `{id}`, so that nobody would deliver them: configure it again first");
            return Err(Error::conflict("workflow_removed", message));
        }
        if let Some(id) = &order.filter.workflow {
            self.check_sent(id).await?;
        }
        job::create(&self.database, order, &self.who).await?;
        self.replay_job(order.id).await
    }

    pub async fn replay_jobs(&self, after: Option<&str>, limit: usize) -> Result<Page<Replay>, Error> {
        let parse = |written: &str| {
            let (at, id) = written.split_once('/')?;
            Some((Timestamp::from_microsecond(at.parse().ok()?).ok()?, id.parse::<Uuid>().ok()?))
        };
        let after = after.map(|written| parse(written).ok_or_else(|| not_a_mark(written))).transpose()?;
        let asked = i64::try_from(limit).unwrap_or(i64::MAX);
        let items = job::list(&self.database, after, asked).await?;
        let last = items.last().filter(|_| items.len() == limit);
        let next = last.map(|last| format!("{}/{}", last.created_at.as_microsecond(), last.id));
        Ok(Page { items, next })
    }

    pub async fn replay_job(&self, id: Uuid) -> Result<Replay, Error> {
        job::show(&self.database, id).await?.ok_or_else(|| Error::NotFound(format!("no replay {id}")))
    }

    /// Pauses, resumes or cancels a replay. Said twice, it is so all the same.
    pub async fn decide_replay(&self, id: Uuid, word: Word) -> Result<Replay, Error> {
        let changed = job::decide(&self.database, id, word, &self.who).await?;
        let now = self.replay_job(id).await?;
        if changed || now.state == word.leads_to() {
            return Ok(now);
        }
        Err(Error::conflict("replay_over", format!("the replay {id} is {}", now.state)))
    }

    /// Refuses what would wait for ever: processes run the workflow, and none of them sends. Where none runs at all, one will.
    async fn check_sent(&self, id: &str) -> Result<(), Error> {
        if !left::is_run(&self.database, id).await? || left::is_sent(&self.database, id).await? {
            return Ok(());
        }
        let message = format!("no process sends `{id}`: none of those that run it has the role relay");
        Err(Error::conflict("workflow_not_sent", message))
    }

    /// Whether a filter names only what there is: an empty list would say that there is nothing.
    async fn check(&self, filter: &Filter) -> Result<(), Error> {
        let known = |reason: &String| Reason::ALL.iter().any(|one| one.as_str() == reason);
        if let Some(reason) = filter.reason.as_ref().filter(|reason| !known(reason)) {
            let all: Vec<&str> = Reason::ALL.iter().map(|one| one.as_str()).collect();
            return Err(Error::Invalid(format!("`{reason}` is not a reason; there are: {}", all.join(", "))));
        }
        match &filter.workflow {
            Some(workflow) => self.known(workflow).await,
            None => Ok(()),
        }
    }
}

fn mark(written: &str) -> Result<dead_letter::Mark, Error> {
    let parse = || {
        let (at, id) = written.split_once('/')?;
        Some((Timestamp::from_microsecond(at.parse().ok()?).ok()?, id.parse::<Place>().ok()?))
    };
    parse().ok_or_else(|| not_a_mark(written))
}

fn not_a_mark(written: &str) -> Error {
    Error::Invalid(format!("`{written}` is not the `next` of a page"))
}
