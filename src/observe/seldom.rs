//! Says a thing that may happen to every event at most once a minute for each workflow, with how often it was not said.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(60);

/// When each workflow was last spoken of, and how often it was not since.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<HashMap<Arc<str>, (Instant, u64)>>);

impl Seldom {
    /// How often it happened unsaid since the last time, if it is time to say it again.
    pub fn is_time(&self, workflow: &Arc<str>, now: Instant) -> Option<u64> {
        let mut all = self.0.lock().expect("no holder of this lock panics");
        match all.get_mut(workflow) {
            Some((at, unsaid)) if now.saturating_duration_since(*at) < EVERY => {
                *unsaid += 1;
                None
            }
            Some((at, unsaid)) => {
                *at = now;
                Some(std::mem::take(unsaid))
            }
            None => {
                all.insert(Arc::clone(workflow), (now, 0));
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_said_and_the_others_are_counted() {
        let (seldom, now) = (Seldom::default(), Instant::now());
        let (orders, bills): (Arc<str>, Arc<str>) = ("orders".into(), "bills".into());
        assert_eq!(seldom.is_time(&orders, now), Some(0));
        assert_eq!(seldom.is_time(&orders, now + Duration::from_secs(1)), None);
        assert_eq!(seldom.is_time(&bills, now + Duration::from_secs(1)), Some(0));
        assert_eq!(seldom.is_time(&orders, now + Duration::from_secs(59)), None);
        assert_eq!(seldom.is_time(&orders, now + Duration::from_secs(61)), Some(2));
        assert_eq!(seldom.is_time(&orders, now + Duration::from_secs(62)), None);
    }
}
