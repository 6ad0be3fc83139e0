//! The way from a commit to the relay within one process: batches whose first attempts are claimed are passed on in
//! memory, so that nothing is read back on the happy path.
//!
//! The relay registers a delivery when it takes it and removes it before it gives the rest back. A hand-off names its
//! range and epoch, so that one which comes late is recognised.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc::UnboundedSender;

use crate::event::{CursorId, Event};

/// The claimed events of one append, in order: offsets `[from, to)`.
#[derive(Debug)]
pub struct HandOff {
    pub cursor: CursorId,
    pub epoch: i64,
    pub from: i64,
    pub to: i64,
    pub events: Vec<Event>,
}

/// What the writer tells the relay about a cursor.
#[derive(Debug)]
pub enum News {
    HandOff(HandOff),
    /// Events wait in the outbox.
    Waiting(CursorId),
    /// Events were stored that each have a life of their own, and may be due.
    Due,
}

/// A delivery that this process holds, as the writer sees it.
#[derive(Debug)]
pub struct Desk {
    pub epoch: i64,
    /// Whether the relay has room for more; bounds what is claimed ahead, and so the channel.
    pub has_room: Arc<AtomicBool>,
    pub sender: UnboundedSender<News>,
    /// Set while the relay knows that events wait, so that it is told once.
    pub told: Arc<AtomicBool>,
}

/// The deliveries of this process by cursor.
#[derive(Debug, Clone, Default)]
pub struct Desks(Arc<Mutex<HashMap<CursorId, Arc<Desk>>>>);

impl Desks {
    pub fn open(&self, cursor: CursorId, desk: Desk) {
        self.lock().insert(cursor, Arc::new(desk));
    }

    pub fn close(&self, cursor: CursorId) {
        self.lock().remove(&cursor);
    }

    pub fn get(&self, cursor: CursorId) -> Option<Arc<Desk>> {
        self.lock().get(&cursor).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<CursorId, Arc<Desk>>> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

impl Desk {
    /// A relay that is gone leaves the range claimed; the next take-over finds it.
    pub fn hand_off(&self, hand_off: HandOff) {
        let _ = self.sender.send(News::HandOff(hand_off));
    }

    pub fn tell_waiting(&self, cursor: CursorId) {
        if !self.told.swap(true, Ordering::AcqRel) {
            let _ = self.sender.send(News::Waiting(cursor));
        }
    }

    pub fn tell_due(&self) {
        let _ = self.sender.send(News::Due);
    }

    pub fn has_room(&self) -> bool {
        self.has_room.load(Ordering::Acquire)
    }
}
