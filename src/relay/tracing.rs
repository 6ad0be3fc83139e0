//! What the dispatcher tells of its attempts to whoever collects traces. Nothing at all where nobody does.

use std::time::{Instant, SystemTime};

use super::attempts::Job;
use super::dispatcher::Dispatcher;
use crate::observe::trace::Told;
use crate::send::outcome::Outcome;
use crate::send::{Attempt, request};

impl Dispatcher {
    pub(super) fn trace(
        &self,
        job: &Job,
        attempt: &Attempt,
        began: Instant,
        outcome: &'static str,
        is_delivered: bool,
    ) {
        let Some(tracer) = &self.shared.tracer else { return };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let nanos = |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let event = &job.event;
        let began = nanos(now.saturating_sub(began.elapsed()));
        tracer.attempt(&Told {
            context: &request::trace_context(event),
            is_made: event.traceparent.is_none(),
            workflow: &self.workflow.id,
            event: event.place.to_string(),
            attempt: job.tries.sends,
            outcome,
            status: match attempt.outcome {
                Outcome::Answered { status, .. } => Some(status),
                Outcome::Unknown(_) | Outcome::NeverSent(_) => None,
            },
            error: attempt.error.clone(),
            is_delivered,
            record_at: event.record_at.and_then(|millis| u64::try_from(millis).ok()).map(|millis| millis * 1_000_000),
            stored_at: u64::try_from(event.stored_at).unwrap_or_default() * 1_000,
            began,
            ended: began + nanos(attempt.took),
        });
    }
}
