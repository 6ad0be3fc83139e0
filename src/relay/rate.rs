//! How many requests a second: a bucket that fills at this process's share of the workflow's rate. Pure: the time is an
//! argument.

use std::time::{Duration, Instant};

use crate::config::RateLimit;

#[derive(Debug)]
pub struct Rate {
    limit: Option<RateLimit>,
    /// Requests that may be made now; below zero after a share has shrunk with requests claimed.
    tokens: f64,
    /// Tokens a second.
    share: f64,
    most: f64,
    filled_at: Instant,
}

impl Rate {
    /// Starts empty: the process before this one may have spent a whole burst a moment ago.
    pub fn new(limit: Option<RateLimit>, now: Instant) -> Self {
        Self { limit, tokens: 0.0, share: 0.0, most: 1.0, filled_at: now }
    }

    /// Adds what has come since the last time, as one of so many processes.
    pub fn fill(&mut self, processes: usize, now: Instant) {
        let Some(limit) = self.limit else { return };
        let processes = processes.max(1) as f64;
        self.share = limit.per_second as f64 / processes;
        self.most = (limit.burst as f64 / processes).max(1.0);
        let since = now.saturating_duration_since(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + since * self.share).min(self.most);
        self.filled_at = now;
    }

    /// How many requests may start now.
    pub fn allows(&self) -> usize {
        match self.limit {
            None => usize::MAX,
            Some(_) if crate::mutant!("rate-ignored") => usize::MAX,
            // Filled by whole steps of time, a token may lack a last hair.
            Some(_) => (self.tokens + 1e-9).max(0.0) as usize,
        }
    }

    /// How many may ever start at once.
    pub fn most(&self) -> usize {
        if self.limit.is_some() { self.most as usize } else { usize::MAX }
    }

    /// What has gathered is gone.
    pub fn empty(&mut self) {
        self.tokens = self.tokens.min(0.0);
    }

    pub fn take(&mut self) {
        if self.limit.is_some() {
            self.tokens -= 1.0;
        }
    }

    /// When the next request may start, if none may now.
    pub fn next_at(&self) -> Option<Instant> {
        let lacking = 1.0 - self.tokens;
        let waits = self.limit.is_some() && self.allows() == 0 && self.share > 0.0;
        waits.then(|| self.filled_at + Duration::from_secs_f64(lacking / self.share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: RateLimit = RateLimit { per_second: 10, burst: 4 };

    /// Requests made in so many milliseconds, each as early as it may be.
    fn made(rate: &mut Rate, processes: usize, start: Instant, millis: u64) -> usize {
        let mut made = 0;
        for milli in 0..=millis {
            rate.fill(processes, start + Duration::from_millis(milli));
            while rate.allows() > 0 {
                rate.take();
                made += 1;
            }
        }
        made
    }

    #[test]
    fn as_many_as_the_share_of_each_process_and_none_at_once() {
        let now = Instant::now();
        for (processes, expected) in [(1, 20), (2, 10), (5, 4)] {
            let mut rate = Rate::new(Some(LIMIT), now);
            assert_eq!(made(&mut rate, processes, now, 2_000), expected, "{processes} processes");
        }
        assert_eq!(Rate::new(None, now).allows(), usize::MAX);
    }

    #[test]
    fn an_idle_time_gives_a_burst_and_no_more() {
        let now = Instant::now();
        let mut rate = Rate::new(Some(LIMIT), now);
        rate.fill(1, now + Duration::from_secs(3600));
        assert_eq!(rate.allows(), 4);
        rate.fill(2, now + Duration::from_secs(3601));
        assert_eq!(rate.allows(), 2, "the share of one of two");
    }

    #[test]
    fn it_says_when_the_next_may_start() {
        let now = Instant::now();
        let mut rate = Rate::new(Some(LIMIT), now);
        rate.fill(1, now);
        let next = rate.next_at().expect("none may start");
        assert_eq!(next.duration_since(now).as_millis(), 100);
        rate.fill(1, next);
        assert_eq!((rate.allows(), rate.next_at()), (1, None));
    }
}
