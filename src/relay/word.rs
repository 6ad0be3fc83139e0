//! What dispatchers are told of a commit: which outcomes are written down, and what that means for them.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::event::{Lane, Place};
use crate::outbox::attempt::Right;

/// Word that an attempt's outcome is committed.
#[derive(Debug, Clone, Copy)]
pub struct Committed {
    pub place: Place,
    pub right: Right,
    /// How long until the event is due again, if it is.
    pub due_in: Option<Duration>,
    /// Whether the right that it was sent under was seen to stand: else another process has it by now, or the database failed
    /// over.
    pub is_ours: bool,
    pub lane: Option<Lane>,
    /// What that means for the lane.
    pub lane_is: LaneIs,
}

/// What a committed outcome means for the event's lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneIs {
    /// The event is over, and the next may go.
    Free,
    /// The event is stored, or dead and blocking.
    Stored,
    /// The event was stored behind others.
    Behind,
}

/// To a dispatcher. Each word wakes it, so that what one commit has for it is one.
pub type Reply = UnboundedSender<Vec<Committed>>;

/// What there is to tell dispatchers of one commit.
#[derive(Default)]
pub(super) struct Words(Vec<(Reply, Vec<Committed>)>);

impl Words {
    pub(super) fn add(&mut self, to: Reply, committed: Committed) {
        match self.0.iter_mut().find(|(reply, _)| reply.same_channel(&to)) {
            Some((_, word)) => word.push(committed),
            None => self.0.push((to, vec![committed])),
        }
    }

    pub(super) fn say(self) {
        for (reply, word) in self.0 {
            // A dispatcher that is gone needs no word.
            let _ = reply.send(word);
        }
    }
}
