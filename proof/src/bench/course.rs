//! How one run goes on: three million events, the rate of the last 100,000 beside that of the first. There are more in the topic,
//! so that the last are sent as the others are, and not as a topic that ends.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::flags::Flags;
use super::life::Life;
use super::stand::Stand;
use super::subject::Subject;
use super::throughput::WARM;

const ALL: u64 = 3_000_000;
const STEP: u64 = 100_000;
const SCHEMA: &str = "course";
/// A reading costs the receiver a millisecond.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LIMIT: Duration = Duration::from_secs(600);

/// Events per second.
#[derive(Debug, Clone, Serialize)]
pub struct Course {
    /// Of 100,000 after the first ones, which are spent on opening connections and making plans.
    pub first: f64,
    pub last: f64,
    /// Of each 100,000 but the first, in order.
    pub each: Vec<f64>,
}

/// How much had come by when.
#[derive(Debug, Clone, Copy)]
struct Look {
    seconds: f64,
    events: u64,
}

pub async fn run(stand: &Stand, flags: &Flags) -> anyhow::Result<Course> {
    anyhow::ensure!(stand.supply() >= ALL, "{} events are too few for a run of {ALL}; see --events", stand.supply());
    stand.migrate(SCHEMA)?;
    let subject = Subject { schema: SCHEMA.to_owned(), concurrency: flags.concurrency, ..Subject::new("course", true) };
    let life = Life::begin(stand, &subject).await?;
    let (began, mut looks) = (Instant::now(), Vec::new());
    loop {
        let events = stand.seen().await?.requests;
        looks.push(Look { seconds: began.elapsed().as_secs_f64(), events });
        if events >= ALL {
            break;
        }
        anyhow::ensure!(began.elapsed() < LIMIT, "{events} of {ALL} events came within {} s", LIMIT.as_secs());
        tokio::time::sleep(LOOK_EVERY).await;
    }
    life.end().await?;
    stand.drop_schema(SCHEMA).await?;
    let each = (1..ALL / STEP).map(|step| rate(&looks, step * STEP)).collect();
    Ok(Course { first: rate(&looks, WARM), last: rate(&looks, ALL - STEP), each })
}

/// Of the 100,000 events after so many.
fn rate(looks: &[Look], after: u64) -> f64 {
    STEP as f64 / (moment(looks, after + STEP) - moment(looks, after))
}

/// When so many had come, by the two looks around that.
fn moment(looks: &[Look], events: u64) -> f64 {
    let Some(at) = looks.iter().position(|look| look.events >= events) else { return f64::NAN };
    let Some(before) = at.checked_sub(1).map(|before| looks[before]) else { return looks[at].seconds };
    let share = (events - before.events) as f64 / (looks[at].events - before.events) as f64;
    before.seconds + share * (looks[at].seconds - before.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_found_between_looks() {
        // 100,000/s for a second and a half, then 50,000/s, looked at when it suits.
        let looks = [(0.0, 0), (0.3, 30_000), (1.5, 150_000), (2.5, 200_000), (5.5, 350_000)];
        let looks = looks.map(|(seconds, events)| Look { seconds, events });
        assert!((rate(&looks, 30_000) - 100_000.0).abs() < 1.0);
        assert!((rate(&looks, 200_000) - 50_000.0).abs() < 1.0);
        assert!((rate(&looks, 100_000) - 100_000.0 / 1.5).abs() < 1.0);
        assert!(rate(&looks, 300_000).is_nan(), "it did not come that far");
    }
}
