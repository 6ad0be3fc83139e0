//! Claiming events that waited in the outbox for their first attempt, as far as there is room.

use std::time::Instant;

use tracing::warn;

use super::dispatcher::Dispatcher;
use super::inbox::Message;
use super::window::Window;
use crate::event::CursorId;
use crate::observe::chain;
use crate::outbox::claim::{self, Claim, Spread};
use crate::outbox::{self, Database};

/// How many waiting events one claim reads.
const RANGE_EVENTS: usize = 1_000;
/// A claim of so many bytes ends after its first record.
const ONE_RECORD: i64 = 1;
/// More than one record can make.
const WIDEST_RANGE: usize = 20_000;

impl Dispatcher {
    /// Reads events that wait in the outbox, as far as there is room.
    pub(super) fn claim_waiting(&mut self) {
        if !self.may_send() {
            return;
        }
        let only_what_starts = self.workflow.delivery.in_doubt.claims_only_what_starts();
        let ordered = self.workflow.delivery.ordering.is_some();
        let (events, bytes) = self.ahead();
        let most_bytes = self.shared.budget.bytes();
        let bytes = most_bytes.saturating_sub(bytes);
        let mut room = match only_what_starts {
            // Events whose lane is busy are claimed and wait.
            true => self.slots().free().saturating_sub(self.queued()).min(self.most_ahead().saturating_sub(events)),
            // What is under way is not ahead: waited for, the queue would run dry before more is read.
            false => self.most_ahead().saturating_sub(events.saturating_sub(self.unsettled_firsts())),
        };
        // Few large claims: planning one costs as much as reading hundreds of rows. While others are on their way, a quarter of
        // what may start is waited for.
        let worth_it = (self.share() / 4).min(self.rate.most()).max(1);
        if only_what_starts && room < worth_it && self.unsettled > 0 {
            return;
        }
        if !only_what_starts && (room < self.most_ahead() / 2 || bytes < most_bytes / 2) {
            return;
        }
        let sure = self.sure();
        let bytes = i64::try_from(bytes / self.windows.len().max(1)).expect("memory is small");
        let mut windows: Vec<&mut Window> = self.windows.values_mut().filter(|window| window.may_claim()).collect();
        windows.sort_by_key(|window| window.claimed_at);
        for window in windows {
            // Whoever waited longest gets the room that its next record needs before anybody else gets any.
            let least = if only_what_starts { window.claim_limit.min(sure) } else { window.claim_limit };
            if room == 0 || (only_what_starts && room < least) {
                return;
            }
            window.claiming = true;
            window.claimed_at = Instant::now();
            let limit = room.min(RANGE_EVENTS).max(least);
            room = room.saturating_sub(limit);
            // A claim leaves out its last record when that may be cut, so one more is asked for than may start.
            let (slots, limit) = if only_what_starts { (limit, limit + 1) } else { (0, limit) };
            self.reserved_for_firsts += slots;
            let limit = i64::try_from(limit).expect("a range is small");
            let (cursor, epoch, claimed_to) = (window.cursor, window.epoch, window.claimed_to());
            let (database, messages, id) =
                (self.shared.database.clone(), self.messages.clone(), self.workflow.id.clone());
            tokio::spawn(async move {
                crate::failpoint!("claim.waiting");
                let mut claim = claim::waiting(&database, (cursor, epoch), claimed_to, limit, bytes).await;
                if only_what_starts && slots >= sure && matches!(claim, Ok(Claim::TooNarrow)) {
                    claim = spread(&database, (cursor, epoch), claimed_to, ordered).await;
                }
                let claim = claim.map_err(|error| {
                    warn!(workflow = %id, error = %chain(&error), "claiming waiting events failed");
                });
                let _ = messages.send(Message::Waiting { cursor, epoch, slots, claim: claim.ok() });
            });
        }
    }

    /// Requests that first attempts are sure to get together, sooner or later.
    fn sure(&self) -> usize {
        self.slots().kept().min(self.rate.most()).max(1)
    }

    /// Claimed events that no request was made for yet.
    pub(super) fn queued(&self) -> usize {
        self.windows.values().map(Window::queued).sum()
    }

    pub(super) fn claimed(&mut self, cursor: CursorId, epoch: i64, claim: Option<Claim>) {
        let only_what_starts = self.workflow.delivery.in_doubt.claims_only_what_starts();
        let sure = self.sure();
        let Some(window) = self.windows.get_mut(&cursor).filter(|window| window.epoch == epoch) else { return };
        window.claiming = false;
        match claim {
            // Came too late to be started: never sent, so given back with the rest.
            Some(Claim::Range { .. }) if window.releasing => {}
            Some(Claim::Range { claimed_to, events }) => {
                // What was read may have been cut by the limit: asked again until nothing comes.
                // A record whose events were each given a life of their own has none here, and they are due now.
                window.may_wait = !events.is_empty() || claimed_to > window.claimed_to();
                window.reads_back = window.may_wait;
                self.next_retry_at = if events.is_empty() { Instant::now() } else { self.next_retry_at };
                window.claim_limit = 0;
                let in_turn = window.has_queued();
                window.accept(claimed_to, events);
                if !in_turn && window.has_queued() {
                    self.turns.push_back(cursor);
                }
            }
            Some(Claim::Nothing) => (window.may_wait, window.reads_back) = (false, false),
            // Asked again with the slots that first attempts are sure to get; more than those are leased one by one.
            Some(Claim::TooNarrow) if only_what_starts => window.claim_limit = sure,
            Some(Claim::TooNarrow) => window.claim_limit = WIDEST_RANGE,
            // The range stays another than we believe, after a lost reply for one: the delivery is given back and taken
            // anew, which sorts out what belongs to whom.
            Some(Claim::Astray) if window.goes_astray(Instant::now()) => self.release(cursor),
            Some(Claim::Astray) => {}
            // Asked again; if the claim was made without our knowing, it is found astray then.
            None => window.claims_later(Instant::now()),
        }
    }
}

/// The next record has more events than may start together: each is leased by itself; or, where they keep order among
/// themselves, all are claimed, because only the first can be sent.
async fn spread(database: &Database, held: (CursorId, i64), from: i64, ordered: bool) -> Result<Claim, outbox::Error> {
    match claim::spread(database, held, from, ordered).await? {
        Spread::Done { claimed_to } => Ok(Claim::Range { claimed_to, events: Vec::new() }),
        Spread::InLane => claim::waiting(database, held, from, WIDEST_RANGE as i64, ONE_RECORD).await,
        Spread::Astray => Ok(Claim::Astray),
    }
}
