//! Work that may never end and cannot be ended: a record and the programs of a workflow. Enters: what to do. Leaves: its result, or why not.
//!
//! On threads of their own, one at a time, so that what runs for ever takes a core and not all. One that takes too long is left to itself and
//! remembered: it is not begun anew, others get their turn, and only when too many were left is nobody let in.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::event::Place;

/// So many cores at the most are lost to threads that do not end, until the process does.
const MOST_LEFT: usize = 3;
/// Whoever has the turn gives it back within the limit, and a little later.
const MARGIN: Duration = Duration::from_secs(1);

/// A dead letter, and the version of the configuration that it is tried with.
pub type Task = (Place, i64);

pub enum Ended<T> {
    Done(T),
    /// It does not end in time, now or when it was tried before; or it went too far and was stopped.
    TooLong,
    /// Others are at it, or were left: it was not tried.
    Busy,
}

/// Where work is done apart.
pub struct Apart {
    turn: Semaphore,
    /// What was left to itself and has not ended.
    left: Mutex<Vec<Task>>,
}

impl Apart {
    pub const fn idle() -> Self {
        Self { turn: Semaphore::const_new(1), left: Mutex::new(Vec::new()) }
    }

    /// Does it, and waits for it no longer than the limit.
    pub async fn run<T: Send + 'static>(
        &'static self,
        task: Task,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Ended<T> {
        if self.left().contains(&task) {
            return Ended::TooLong;
        }
        let Ok(turn) = timeout(limit + MARGIN, self.turn.acquire()).await else { return Ended::Busy };
        // Dropped after what is watched: who comes next knows of it.
        let _turn = turn.expect("it is never closed");
        {
            let left = self.left();
            // Somebody else may have tried it meanwhile.
            if left.contains(&task) {
                return Ended::TooLong;
            }
            if left.len() >= MOST_LEFT {
                return Ended::Busy;
            }
        }
        let watched = Watched { apart: self, task, has_ended: Arc::default() };
        let has_ended = Arc::clone(&watched.has_ended);
        let (answer, answered) = oneshot::channel();
        let thread = move || {
            let done = catch_unwind(AssertUnwindSafe(work));
            self.end(task, &has_ended);
            // Nobody hears it where it took too long.
            let _ = answer.send(done.ok());
        };
        std::thread::Builder::new().name("replay".to_owned()).spawn(thread).expect("a thread can be started");
        match timeout(limit, answered).await {
            Ok(Ok(Some(done))) => Ended::Done(done),
            Ok(Ok(None) | Err(_)) | Err(_) => Ended::TooLong,
        }
    }

    fn left(&self) -> MutexGuard<'_, Vec<Task>> {
        self.left.lock().expect("no holder of this lock panics")
    }

    fn end(&self, task: Task, has_ended: &AtomicBool) {
        let mut left = self.left();
        has_ended.store(true, Ordering::Release);
        left.retain(|one| *one != task);
    }
}

/// A thread that somebody waits for. Dropped before it has ended, also because nobody wants to know any more, it is left to itself.
struct Watched {
    apart: &'static Apart,
    task: Task,
    /// Changed and looked at under the lock of what was left.
    has_ended: Arc<AtomicBool>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut left = self.apart.left();
        if !self.has_ended.load(Ordering::Acquire) {
            left.push(self.task);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::event::CursorId;

    const LIMIT: Duration = Duration::from_millis(50);

    fn task(offset: i64) -> Task {
        (Place { cursor: CursorId(1), offset, index: 0, generation: 0 }, 1)
    }

    /// What lasts until the word is dropped.
    fn lasting() -> (Sender<()>, impl FnOnce() + Send + 'static) {
        let (word, heard) = channel();
        let endless = move || {
            let _ = heard.recv();
        };
        (word, endless)
    }

    async fn is_done(apart: &'static Apart, offset: i64) -> bool {
        matches!(apart.run(task(offset), Duration::from_secs(10), || ()).await, Ended::Done(()))
    }

    #[tokio::test]
    async fn what_never_ends_holds_up_nothing_else_and_is_not_begun_anew() {
        static APART: Apart = Apart::idle();
        let (_word, endless) = lasting();
        assert!(matches!(APART.run(task(0), LIMIT, endless).await, Ended::TooLong));
        assert!(is_done(&APART, 1).await);
        let begun = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&begun);
        assert!(matches!(
            APART.run(task(0), LIMIT, move || begins.store(true, Ordering::Release)).await,
            Ended::TooLong
        ));
        assert!(!begun.load(Ordering::Acquire));
        // Other programs are another matter.
        let (place, version) = task(0);
        assert!(matches!(APART.run((place, version + 1), Duration::from_secs(10), || 7).await, Ended::Done(7)));
    }

    #[tokio::test]
    async fn when_too_many_were_left_nobody_is_let_in_until_one_ends() {
        static APART: Apart = Apart::idle();
        let mut words = Vec::new();
        for offset in 0..MOST_LEFT as i64 {
            let (word, endless) = lasting();
            words.push(word);
            assert!(matches!(APART.run(task(offset), LIMIT, endless).await, Ended::TooLong));
        }
        assert!(matches!(APART.run(task(10), LIMIT, || ()).await, Ended::Busy));
        assert!(matches!(APART.run(task(0), LIMIT, || ()).await, Ended::TooLong), "and that of these is known");
        words.pop();
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while APART.left().len() == MOST_LEFT {
            assert!(std::time::Instant::now() < deadline, "it ends");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(is_done(&APART, 10).await);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_is_left_and_forgotten_once_it_ends() {
        static APART: Apart = Apart::idle();
        let (word, lasting) = lasting();
        // The caller goes away while it runs.
        assert!(timeout(LIMIT, APART.run(task(0), Duration::from_secs(10), lasting)).await.is_err());
        assert_eq!(*APART.left(), [task(0)]);
        drop(word);
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while !APART.left().is_empty() {
            assert!(std::time::Instant::now() < deadline, "it ends");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(is_done(&APART, 0).await);
    }

    fn too_far() {
        panic!("too far");
    }

    #[tokio::test]
    async fn what_panics_has_ended() {
        static APART: Apart = Apart::idle();
        assert!(matches!(APART.run(task(0), Duration::from_secs(10), too_far).await, Ended::TooLong));
        assert!(APART.left().is_empty());
        assert!(is_done(&APART, 0).await);
    }
}
