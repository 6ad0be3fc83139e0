//! Carries out replays of many dead letters, each under a lease: when the process dies another goes on.
//!
//! What must hold: each letter is replayed once (its row is the judge), counted in the statement that takes it, and skipped ones are
//! counted with the place behind which it goes on, by the holder of the lease alone. The lease is kept by time, however long a letter takes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::{self, JoinSet};
use tracing::{info, warn};
use uuid::Uuid;

use super::{Error, Filter, Wish, replay, show};
use crate::config::Workflow;
use crate::event::{CursorId, Place, ProcessId};
use crate::observe::chain;
use crate::outbox::sql::{boolean, float8, int4, int8, text, texts, timestamptz, uuid};
use crate::outbox::{Database, Purpose, claim, notify};

const LOOK_EVERY: Duration = Duration::from_millis(500);
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Replays: a slow one holds up no other.
const MOST_AT_ONCE: usize = 8;
const LEASE: Duration = Duration::from_secs(15);
/// So often the lease is renewed, and heard what an operator says.
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// Letters that are looked for at once.
const AT_ONCE: i64 = 50;

/// The workflows that this process knows.
pub type Workflows = watch::Receiver<Vec<Arc<Workflow>>>;

struct Job {
    id: Uuid,
    filter: Filter,
    wish: Wish,
    per_second: Option<f64>,
    after: Place,
}

/// Looks for work until it is dropped.
pub async fn replay_forever(database: Database, process: ProcessId, workflows: Workflows) {
    let replayer = Replayer { database, process, workflows };
    let (mut tasks, mut under_way): (JoinSet<()>, HashMap<task::Id, Uuid>) = (JoinSet::new(), HashMap::new());
    loop {
        while let Some(ended) = tasks.try_join_next_with_id() {
            under_way.remove(&ended.map_or_else(|panicked| panicked.id(), |(id, ())| id));
        }
        if tasks.len() < MOST_AT_ONCE
            // Postgres may be away: looked for again.
            && let Ok(Some(job)) = replayer.claim(under_way.values()).await
        {
            let (id, replayer) = (job.id, replayer.clone());
            let task = tasks.spawn(async move {
                if let Err(error) = replayer.carry_out(job).await {
                    warn!(replay = %id, error = %chain(&error), "a replay of dead letters was interrupted; it goes on in a moment");
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            });
            under_way.insert(task.id(), id);
            continue;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// How this process's part in a replay ended.
enum Carried {
    ToTheEnd,
    /// Somebody decided otherwise, or another process has it.
    NotOurs,
}

#[derive(Clone)]
struct Replayer {
    database: Database,
    process: ProcessId,
    workflows: Workflows,
}

impl Replayer {
    async fn claim(&self, under_way: impl Iterator<Item = &Uuid>) -> Result<Option<Job>, Error> {
        let lease = LEASE.as_secs_f64();
        let under_way: Vec<String> = under_way.map(Uuid::to_string).collect();
        let known: Vec<String> = self.workflows.borrow().iter().map(|workflow| workflow.id.to_string()).collect();
        let parameters = [uuid(&self.process), float8(&lease), texts(&under_way), texts(&known)];
        let file = include_str!("../../sql/dead_letter/job_claim.sql");
        let rows = self.database.query(Purpose::Admin, file, &parameters).await?;
        Ok(rows.first().map(|row| Job {
            id: row.get("id"),
            filter: Filter {
                workflow: row.get("workflow"),
                reason: row.get("reason"),
                from: row.get("from_at"),
                to: row.get("to_at"),
            },
            wish: Wish {
                who: row.get("who"),
                force: row.get("force"),
                new_key: row.get("new_key"),
                job: Some(row.get("id")),
            },
            per_second: row.get("per_second"),
            after: Place {
                cursor: CursorId(row.get("at_cursor")),
                offset: row.get("at_offset"),
                index: row.get("at_index"),
                generation: row.get("at_generation"),
            },
        }))
    }

    async fn carry_out(&self, job: Job) -> Result<(), Error> {
        let id = job.id;
        info!(replay = %id, "replaying dead letters");
        match self.carry_on(job).await? {
            Carried::ToTheEnd => info!(replay = %id, "the replay is over"),
            Carried::NotOurs => {
                info!(replay = %id, "the replay was paused or cancelled, or is carried on by another process");
            }
        }
        Ok(())
    }

    /// Page after page, until nothing is left, an operator says otherwise, or the lease is somebody else's.
    async fn carry_on(&self, mut job: Job) -> Result<Carried, Error> {
        // A page lasts about a second, so that a word of an operator is heard in time.
        let at_once = job.per_second.map_or(AT_ONCE, |rate| (rate.ceil() as i64).clamp(1, AT_ONCE));
        let wish = job.wish.clone();
        let (mut turn, mut renewed) = (Instant::now(), Instant::now());
        loop {
            let page = Box::pin(self.page(&job, at_once));
            let Some(page) = self.while_held(job.id, &mut renewed, page).await else { return Ok(Carried::NotOurs) };
            let (page, mut told) = (page?, Instant::now());
            let (mut skipped, mut problem): (i64, Option<String>) = (0, None);
            for place in &page {
                if let Some(rate) = job.per_second {
                    turn = turn.max(Instant::now() - Duration::from_secs(1)) + Duration::from_secs_f64(1.0 / rate);
                }
                let not_before = job.per_second.map(|_| turn);
                let work = Box::pin(async {
                    if let Some(at) = not_before {
                        tokio::time::sleep_until(at.into()).await;
                    }
                    self.one(*place, &wish).await
                });
                let Some(done) = self.while_held(job.id, &mut renewed, work).await else {
                    return Ok(Carried::NotOurs);
                };
                match done {
                    Ok(()) | Err(Error::NotFound(_)) => {}
                    Err(Error::Outbox(error)) => return Err(error.into()),
                    Err(error) => {
                        skipped += 1;
                        problem = Some(chain(&error));
                    }
                }
                job.after = *place;
                if told.elapsed() >= RENEW_EVERY {
                    if !self.advance(&job, skipped, problem.as_deref(), false).await? {
                        return Ok(Carried::NotOurs);
                    }
                    (skipped, problem) = (0, None);
                    (told, renewed) = (Instant::now(), Instant::now());
                }
            }
            let is_over = page.is_empty();
            if !self.advance(&job, skipped, problem.as_deref(), is_over).await? {
                return Ok(Carried::NotOurs);
            }
            renewed = Instant::now();
            if is_over {
                return Ok(Carried::ToTheEnd);
            }
        }
    }

    /// Does this, and keeps the lease meanwhile. Nothing when the replay is not this process's any more: then it is left as it stands.
    async fn while_held<T>(&self, id: Uuid, renewed: &mut Instant, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.keep(id, renewed) => None,
        }
    }

    /// Renews the lease until it is not this process's any more.
    async fn keep(&self, id: Uuid, renewed: &mut Instant) {
        let lease = LEASE.as_secs_f64();
        loop {
            tokio::time::sleep_until((*renewed + RENEW_EVERY).into()).await;
            let parameters = [uuid(&id), uuid(&self.process), float8(&lease)];
            let file = include_str!("../../sql/dead_letter/job_renew.sql");
            let rows = self.database.query(Purpose::Admin, file, &parameters).await;
            // Postgres may be away: whether the lease has run out meanwhile is heard when it is back.
            *renewed = Instant::now();
            if rows.is_ok_and(|rows| rows.is_empty()) {
                return;
            }
        }
    }

    async fn one(&self, place: Place, wish: &Wish) -> Result<(), Error> {
        let letter = show(&self.database, place).await?;
        let known = self.workflows.borrow().iter().find(|w| *w.id == *letter.workflow).cloned();
        let workflow = known.ok_or_else(|| Error::NoWorkflow(place, letter.workflow.clone()))?;
        replay(&self.database, &letter, &workflow, wish).await?;
        // Heard of by the next poll at the latest.
        let _ = notify::tell(&self.database, &workflow.id).await;
        Ok(())
    }

    async fn page(&self, job: &Job, limit: i64) -> Result<Vec<Place>, Error> {
        let Place { cursor: CursorId(cursor), offset, index, generation } = job.after;
        let parameters = [
            text(&job.filter.workflow),
            text(&job.filter.reason),
            timestamptz(&job.filter.from),
            timestamptz(&job.filter.to),
            int8(&cursor),
            int8(&offset),
            int4(&index),
            int4(&generation),
            int8(&limit),
        ];
        let file = include_str!("../../sql/dead_letter/job_page.sql");
        let rows = self.database.query(Purpose::Admin, file, &parameters).await?;
        Ok(rows.iter().map(claim::place).collect())
    }

    /// Answers whether the replay is still this process's to carry on.
    async fn advance(&self, job: &Job, skipped: i64, problem: Option<&str>, is_over: bool) -> Result<bool, Error> {
        crate::failpoint!("replay.advance");
        let Place { cursor: CursorId(cursor), offset, index, generation } = job.after;
        let lease = LEASE.as_secs_f64();
        let parameters = [
            uuid(&job.id),
            uuid(&self.process),
            float8(&lease),
            int8(&skipped),
            text(&problem),
            int8(&cursor),
            int8(&offset),
            int4(&index),
            int4(&generation),
            boolean(&is_over),
        ];
        let file = include_str!("../../sql/dead_letter/job_advance.sql");
        Ok(!self.database.query(Purpose::Admin, file, &parameters).await?.is_empty())
    }
}
