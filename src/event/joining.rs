//! Whether a process has joined a workflow's group, or why it may not: written by the workflow's consumer, read by readiness and by whoever
//! shows the workflow. A refusal is no decision: it is of this process alone, and ends when Kafka permits what it forbade.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;

/// What Kafka forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forbidden {
    Group,
    Topic,
}

impl Forbidden {
    pub const ALL: [Self; 2] = [Self::Group, Self::Topic];
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub forbidden: Forbidden,
    pub reason: String,
    pub since: Timestamp,
}

#[derive(Debug, Default)]
pub struct Joining {
    is_over: AtomicBool,
    is_refused: AtomicBool,
    refusal: Mutex<Option<Refusal>>,
}

impl Joining {
    /// The group was joined, if only with an empty assignment; or there is nothing to join.
    pub fn done(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Whether nobody is to wait for it any more: it was joined, or Kafka has said no.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Answers whether that is news.
    pub fn refuse(&self, refusal: Refusal) -> bool {
        let mut known = self.refusal.lock().expect("no holder of this lock panics");
        let is_new = known.as_ref().is_none_or(|known| known.forbidden != refusal.forbidden);
        if is_new {
            *known = Some(refusal);
        }
        self.is_refused.store(true, Ordering::Release);
        self.is_over.store(true, Ordering::Release);
        is_new
    }

    /// One of these is shown to be permitted. Answers whether it was forbidden. Cheap: asked for every record.
    pub fn permit(&self, permitted: &[Forbidden]) -> bool {
        if !self.is_refused.load(Ordering::Acquire) {
            return false;
        }
        let mut known = self.refusal.lock().expect("no holder of this lock panics");
        let is_over = known.take_if(|known| permitted.contains(&known.forbidden)).is_some();
        self.is_refused.store(known.is_some(), Ordering::Release);
        is_over
    }

    /// What Kafka forbids, if it does.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal.lock().expect("no holder of this lock panics").clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(forbidden: Forbidden) -> Refusal {
        Refusal { forbidden, reason: format!("no Read: {forbidden:?}"), since: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn a_refusal_holds_nobody_up_is_news_once_and_ends_when_it_is_permitted() {
        let joining = Joining::default();
        assert!(!joining.is_over() && !joining.permit(&[Forbidden::Group]));
        assert!(joining.refuse(of(Forbidden::Group)) && joining.is_over());
        assert!(!joining.refuse(of(Forbidden::Group)));
        assert_eq!(joining.refusal(), Some(of(Forbidden::Group)));
        assert!(joining.permit(&[Forbidden::Group]) && !joining.permit(&[Forbidden::Group]));
        assert!(joining.refusal().is_none() && joining.is_over());
    }

    #[test]
    fn being_let_into_the_group_says_nothing_of_a_topic() {
        let joining = Joining::default();
        assert!(joining.refuse(of(Forbidden::Topic)));
        assert!(!joining.permit(&[Forbidden::Group]));
        assert_eq!(joining.refusal(), Some(of(Forbidden::Topic)));
        assert!(joining.permit(&Forbidden::ALL));
    }
}
