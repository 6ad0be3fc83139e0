//! The transform's threads: batches of records in, batches for the writer out, in order per partition.
//!
//! jaq cannot be interrupted, so a watchdog ends the process when one record runs too long, after logging which: the
//! partition is then read one record at a time, and the record that kills again becomes a dead letter.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tracing::error;

use crate::config::OnInvalid;
use crate::direct::{Desk, Parcel};
use crate::event::{Reason, Record};
use crate::observe::Metrics;
use crate::outbox::batch::{Batch, DeadRecord, Holding};
use crate::outbox::load::Load;
use crate::outbox::writer::Coming;
use crate::transform::{Disposition, Origin, Rejection, Transformer};

const RECORD_LIMIT: Duration = Duration::from_secs(5);

/// Consecutive records of one partition, as read.
pub struct Unread {
    pub holding: Arc<Holding>,
    pub expected: i64,
    pub next: i64,
    pub records: Vec<Record>,
    /// The first record is known to kill: how often it did.
    pub convicted: Option<i32>,
    /// For a record that is read alone: closed once its suspicion is over. Nothing is stored before that.
    pub cleared: Option<Receiver<()>>,
    /// Where its events go, without the outbox.
    pub direct: Option<Desk>,
    pub load: Load,
}

/// Asks for a workflow to be halted, because `onInvalid` says so.
pub type Halts = tokio::sync::mpsc::UnboundedSender<(Arc<Holding>, String)>;

pub struct Workers {
    threads: Vec<Sender<Unread>>,
    coming: Coming,
}

impl Workers {
    /// Starts `count` threads that write to `writer`. They end when the last sender of each is gone.
    pub fn start(
        count: usize,
        (writer, coming): (&tokio::sync::mpsc::Sender<Batch>, &Coming),
        halts: &Halts,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let mut threads = Vec::new();
        let mut posts = Vec::new();
        for index in 0..count {
            let (sender, queue) = channel();
            let post = Arc::new(Post::default());
            posts.push(Arc::clone(&post));
            let (writer, coming) = (writer.clone(), Arc::clone(coming));
            let (halts, metrics) = (halts.clone(), Arc::clone(metrics));
            let worker = Worker { post, writer, coming, halts, metrics, records: 0, transformers: HashMap::new() };
            std::thread::Builder::new()
                .name(format!("transform-{index}"))
                .spawn(move || worker.run(&queue))
                .expect("a thread can be started");
            threads.push(sender);
        }
        let _ = std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || watch(&posts));
        Self { threads, coming: Arc::clone(coming) }
    }

    /// A partition always goes to the same thread, so its batches stay in order.
    pub fn read(&self, unread: Unread) {
        let index = unread.holding.cursor.0.unsigned_abs() as usize % self.threads.len();
        if unread.direct.is_none() {
            self.coming.fetch_add(1, Ordering::AcqRel);
        }
        // A thread that is gone has panicked outside the transform; the load is freed and the process ends elsewhere.
        let _ = self.threads[index].send(unread);
    }
}

/// What one thread is busy with, for the watchdog.
#[derive(Default)]
struct Post {
    /// Which record of this thread, counted from 1; 0 when idle.
    record: AtomicU64,
    offset: AtomicI64,
    partition: Mutex<Option<Origin>>,
}

const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long a post has been busy with one record, by the looks at it: a process that was stopped meanwhile did not look.
#[derive(Default)]
struct Busy {
    record: u64,
    looks: u32,
}

impl Busy {
    /// Answers whether the record has taken too long.
    fn look(&mut self, record: u64) -> bool {
        self.looks = if record > 0 && record == self.record { self.looks + 1 } else { 0 };
        self.record = record;
        LOOK_EVERY * self.looks > RECORD_LIMIT
    }
}

fn watch(posts: &[Arc<Post>]) {
    let mut busy: Vec<Busy> = posts.iter().map(|_| Busy::default()).collect();
    while posts.iter().any(|post| Arc::strong_count(post) > 1) {
        std::thread::sleep(LOOK_EVERY);
        for (post, busy) in posts.iter().zip(&mut busy) {
            if busy.look(post.record.load(Ordering::Acquire)) {
                let partition = post.partition.lock().map(|p| p.clone()).unwrap_or_default();
                let place = |p: Origin| format!("{}/{}/{}", p.topic, p.partition, post.offset.load(Ordering::Acquire));
                let position = partition.map(place).unwrap_or_default();
                error!(
                    position,
                    "transforming one record has taken longer than {RECORD_LIMIT:?}; ending the process, because a \
                     running program cannot be interrupted"
                );
                // Written by a thread of its own, which gets the time for it.
                std::thread::sleep(LOOK_EVERY);
                std::process::abort();
            }
        }
    }
}

struct Worker {
    post: Arc<Post>,
    writer: tokio::sync::mpsc::Sender<Batch>,
    coming: Coming,
    halts: Halts,
    metrics: Arc<Metrics>,
    /// How many this thread has begun.
    records: u64,
    /// By workflow version: a new configuration compiles anew.
    transformers: HashMap<(Arc<str>, i64), Arc<Transformer>>,
}

impl Worker {
    fn run(mut self, queue: &Receiver<Unread>) {
        while let Ok(unread) = queue.recv() {
            if unread.holding.is_lost() {
                self.comes_no_more(unread.direct.as_ref());
                continue;
            }
            let (holding, next, direct) = (Arc::clone(&unread.holding), unread.next, unread.direct.clone());
            let (batch, cleared) = self.transform(unread);
            holding.note_transformed(next);
            if let Some(cleared) = cleared {
                // Nothing is ever sent: it ends when the reader lets go of its side.
                let _ = cleared.recv();
            }
            self.comes_no_more(direct.as_ref());
            let Some(batch) = batch else { continue };
            match direct {
                // A dispatcher that is gone has given the partition up: its records are read again.
                Some(desk) => drop(desk.send(Parcel::Batch(batch))),
                None if self.writer.blocking_send(batch).is_err() => return,
                None => {}
            }
        }
    }

    /// What was begun for the writer is about to be in its queue, or nothing came of it.
    fn comes_no_more(&self, direct: Option<&Desk>) {
        if direct.is_none() {
            self.coming.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// No batch, when the workflow must halt at one of the records: those before it are read again then.
    fn transform(&mut self, unread: Unread) -> (Option<Batch>, Option<Receiver<()>>) {
        let Unread { holding, expected, next, records, mut convicted, cleared, load, .. } = unread;
        let mut batch = Batch {
            expected,
            next,
            drafts: Vec::with_capacity(records.len()),
            dead: Vec::new(),
            filtered: Vec::new(),
            tombstones: Vec::new(),
            loads: vec![load],
            holding: Arc::clone(&holding),
        };
        let transformer = self.transformer(&holding);
        for record in records {
            let disposition = match convicted.take() {
                Some(times) => Disposition::Rejected(Rejection::Deadly { times }),
                None => self.apply(&transformer, &holding, &record),
            };
            match disposition {
                Disposition::Events { drafts, key_fell_back } => {
                    if key_fell_back {
                        self.metrics.of(&holding.workflow.id).key_fallbacks.inc();
                    }
                    // A program may make no event of a record: that is a filter by another name.
                    if drafts.is_empty() {
                        batch.filtered.push(record.offset);
                    }
                    batch.drafts.extend(drafts);
                }
                Disposition::Filtered => batch.filtered.push(record.offset),
                Disposition::Tombstone => batch.tombstones.push(record.offset),
                Disposition::Rejected(rejection) => {
                    if holding.workflow.source.on_invalid == OnInvalid::Halt {
                        let reason = format!(
                            "{}/{}/{} cannot be read: {}",
                            holding.origin.topic,
                            holding.origin.partition,
                            record.offset,
                            crate::observe::chain(&rejection)
                        );
                        holding.lose();
                        let _ = self.halts.send((Arc::clone(&holding), reason));
                        return (None, cleared);
                    }
                    batch.dead.push(dead(record, &rejection));
                }
            }
        }
        let dead: usize = batch.dead.iter().map(|record| record.value.as_ref().map_or(0, Vec::len)).sum();
        let bytes = batch.bytes() + dead;
        batch.loads.iter_mut().for_each(|load| load.weigh(bytes));
        (Some(batch), cleared)
    }

    /// The programs of the batch's workflow; the watchdog knows whose they are from here on.
    fn transformer(&mut self, holding: &Arc<Holding>) -> Arc<Transformer> {
        let workflow = &holding.workflow;
        let transformer = self.transformers.entry((Arc::clone(&workflow.id), workflow.version)).or_insert_with(|| {
            let made = Transformer::new(Arc::clone(workflow));
            Arc::new(made.expect("programs were compiled when the configuration was loaded"))
        });
        if let Ok(mut partition) = self.post.partition.lock() {
            *partition = Some(holding.origin.clone());
        }
        Arc::clone(transformer)
    }

    fn apply(&mut self, transformer: &Transformer, holding: &Holding, record: &Record) -> Disposition {
        self.post.offset.store(record.offset, Ordering::Release);
        self.records += 1;
        self.post.record.store(self.records, Ordering::Release);
        let result = catch_unwind(AssertUnwindSafe(|| transformer.apply(record, &holding.origin)));
        self.post.record.store(0, Ordering::Release);
        result.unwrap_or_else(|_| {
            Disposition::Rejected(Rejection::Program { program: "transform", message: "it panicked".to_owned() })
        })
    }
}

fn dead(record: Record, rejection: &Rejection) -> DeadRecord {
    let encode = |bytes: &[u8]| STANDARD.encode(bytes);
    let headers: Vec<(String, Option<String>)> =
        record.headers.iter().map(|(name, value)| (encode(name), value.as_deref().map(encode))).collect();
    DeadRecord {
        offset: record.offset,
        reason: match rejection {
            Rejection::TooLarge { .. } => Reason::TooLarge,
            _ => Reason::Invalid,
        },
        detail: crate::observe::chain(rejection),
        value: record.value,
        key: record.key,
        headers: serde_json::to_string(&headers).expect("text encodes to JSON"),
        source_at: record.timestamp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_too_long_under_way_by_looks_at_it_not_by_the_clock() {
        let mut busy = Busy::default();
        let looks = (RECORD_LIMIT.as_millis() / LOOK_EVERY.as_millis()) as usize;
        // However much time passes between two looks, with the process stopped for one, it counts as one.
        assert!((0..=looks).all(|_| !busy.look(7)));
        assert!(busy.look(7), "it was seen under way for longer than the limit");
        assert!(!busy.look(8), "the next one has its own time");
        assert!((0..100).all(|_| !busy.look(0)), "nothing is under way");
    }
}
