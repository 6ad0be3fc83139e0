//! What every settling statement takes: which event, under which right it was sent, what the attempt saw.

use std::time::Duration;

use crate::event::{Event, Lane, Place};

/// Under which right an attempt was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Right {
    /// A first attempt, out of a claimed range.
    Range { epoch: i64 },
    /// A leased retry.
    Retry { fence: i64 },
    /// A first attempt of the direct path, by the cursor's owner.
    Direct { epoch: i64 },
}

impl Right {
    /// What the `oncebox-fence` header says: it never falls for an event.
    pub fn fence(self) -> i64 {
        match self {
            Self::Range { epoch } | Self::Direct { epoch } => epoch,
            Self::Retry { fence } => fence,
        }
    }

    pub fn is_retry(self) -> bool {
        matches!(self, Self::Retry { .. })
    }

    /// The first attempt of a stored event.
    pub fn is_first(self) -> bool {
        matches!(self, Self::Range { .. })
    }

    pub fn is_direct(self) -> bool {
        matches!(self, Self::Direct { .. })
    }
}

/// As much of an event as settling needs.
#[derive(Debug, Clone)]
pub struct EventRef {
    pub place: Place,
    pub day: jiff::civil::Date,
    pub body_bytes: usize,
    /// The event's own time, milliseconds since 1970.
    pub record_at: Option<i64>,
    pub lane: Option<Lane>,
}

impl From<&Event> for EventRef {
    fn from(event: &Event) -> Self {
        let Event { place, day, record_at, lane, ref body, .. } = *event;
        Self { place, day, body_bytes: body.len(), record_at, lane }
    }
}

/// An attempt that did not deliver, as it is kept.
#[derive(Debug, Clone)]
pub struct AttemptRecord {
    pub outcome: &'static str,
    pub status: Option<u16>,
    pub error: Option<String>,
    /// The first bytes of the answer.
    pub answer: Option<Vec<u8>>,
    pub took: Duration,
    /// How long ago it began.
    pub ago: Duration,
}

pub fn as_i32(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Places as the arrays that statements take.
pub struct Places {
    pub cursors: Vec<i64>,
    pub offsets: Vec<i64>,
    pub indexes: Vec<i32>,
    pub generations: Vec<i32>,
    pub days: Vec<jiff::civil::Date>,
}

impl Places {
    pub fn distinct_cursors(&self) -> Vec<i64> {
        let mut cursors = self.cursors.clone();
        cursors.sort_unstable();
        cursors.dedup();
        cursors
    }

    pub fn of<'a>(events: impl Iterator<Item = &'a EventRef> + Clone) -> Self {
        Self {
            cursors: events.clone().map(|e| e.place.cursor.0).collect(),
            offsets: events.clone().map(|e| e.place.offset).collect(),
            indexes: events.clone().map(|e| e.place.index).collect(),
            generations: events.clone().map(|e| e.place.generation).collect(),
            days: events.map(|e| e.day).collect(),
        }
    }
}
