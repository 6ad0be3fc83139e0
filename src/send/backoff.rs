//! How long a failed event waits before its next attempt. Pure: jitter's random number is an argument.
//!
//! Before jitter a delay never shrinks from one attempt to the next; after it, it stays within `jitter` of the schedule.

use std::time::Duration;

use crate::config::{Backoff, Retries};

/// The delay after `counted` attempts that count, `counted` from 1, before jitter.
pub fn scheduled(backoff: &Backoff, counted: u32) -> Duration {
    let step = counted.saturating_sub(1);
    match backoff {
        Backoff::Listed(list) => {
            let last = list.len().saturating_sub(1);
            list.get((step as usize).min(last)).copied().unwrap_or_default()
        }
        Backoff::Growing { initial, multiplier, max } => {
            let factor = multiplier.powi(i32::try_from(step).unwrap_or(i32::MAX));
            let seconds = initial.as_secs_f64() * factor;
            // Also the maximum for what is no number: nothing times infinity.
            if seconds < max.as_secs_f64() { Duration::from_secs_f64(seconds) } else { *max }
        }
    }
}

/// Spreads a delay over `[1 - jitter, 1 + jitter]` of itself. `random` is from 0 up to 1.
pub fn jittered(delay: Duration, jitter: f64, random: f64) -> Duration {
    delay.mul_f64((1.0 + jitter * (2.0 * random - 1.0)).max(0.0))
}

/// The delay after an answer "in progress": 1, 2, 4 .. 30 s, by the number of such answers so far, this one included.
pub fn in_progress(answers: u32) -> Duration {
    Duration::from_secs(1u64 << answers.saturating_sub(1).min(5)).min(Duration::from_secs(30))
}

/// The longest time from the first attempt to the last one that `limit` attempts can take.
pub fn longest_span(retries: &Retries, limit: u32) -> Duration {
    span(retries, limit, 1.0)
}

/// And the shortest, when every answer comes at once.
pub fn shortest_span(retries: &Retries, limit: u32) -> Duration {
    span(retries, limit, 0.0)
}

fn span(retries: &Retries, limit: u32, random: f64) -> Duration {
    // A schedule of a million steps has long reached its maximum; the sum only has to stay finite.
    let steps = limit.saturating_sub(1).min(100_000);
    (1..=steps).fold(Duration::ZERO, |sum, counted| {
        sum.saturating_add(jittered(scheduled(&retries.backoff, counted), retries.jitter, random))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_entry_of_a_list_repeats() {
        let list = Backoff::Listed([1, 2, 5].map(Duration::from_secs).to_vec());
        let delays: Vec<u64> = (1..=5).map(|n| scheduled(&list, n).as_secs()).collect();
        assert_eq!(delays, [1, 2, 5, 5, 5]);
    }

    #[test]
    fn an_answer_in_progress_waits_1_2_4_to_30_seconds() {
        let delays: Vec<u64> = (1..=8).map(|n| in_progress(n).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 30, 30, 30]);
    }

    proptest! {
        #[test]
        fn delays_never_shrink_before_jitter_and_stay_in_bounds_after(
            initial in 1u64..10_000, multiplier in 1.0f64..10.0, max in 10_000u64..1_000_000,
            counted in 1u32..500, jitter in 0.0f64..1.0, random in 0.0f64..1.0,
        ) {
            let backoff = Backoff::Growing {
                initial: Duration::from_millis(initial), multiplier, max: Duration::from_millis(max),
            };
            let (now, next) = (scheduled(&backoff, counted), scheduled(&backoff, counted + 1));
            prop_assert!(now <= next);
            prop_assert!(next <= Duration::from_millis(max));
            let spread = jittered(now, jitter, random).as_secs_f64();
            prop_assert!(spread >= now.as_secs_f64() * (1.0 - jitter) - 1e-6);
            prop_assert!(spread <= now.as_secs_f64() * (1.0 + jitter) + 1e-6);
        }
    }
}
