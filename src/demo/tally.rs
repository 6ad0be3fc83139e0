//! What the receiver's log says: counted request by request, not believed from any counter.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use crate::receiver::log;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    pub requests: usize,
    /// Keys that had their effect: delivered.
    pub processed: usize,
    /// Requests that were processed although their key had been before: what a receiver without keys applies twice.
    pub repeated: usize,
    /// Keys whose effect happened more than once at a receiver that honours the key.
    pub applied_twice: usize,
    pub failed: usize,
    pub lost_answers: usize,
    /// Keys whose last request was failed or lost: another one is to come.
    pub unanswered: usize,
    /// Keys that came with different bodies.
    pub changed: usize,
}

impl Tally {
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        struct Key {
            processed: usize,
            applied: usize,
            digest: String,
            answered: bool,
        }
        let mut keys: HashMap<String, Key> = HashMap::new();
        let mut tally = Self::default();
        for line in log::read(path)? {
            tally.requests += 1;
            let processed = line.processed();
            match line.answer.as_str() {
                "200" => {}
                "lost" => tally.lost_answers += 1,
                _ => tally.failed += 1,
            }
            let key = keys.entry(line.key).or_insert_with(|| Key {
                processed: 0,
                applied: 0,
                digest: line.digest.clone(),
                answered: false,
            });
            key.processed += usize::from(processed);
            key.applied += usize::from(line.applied);
            key.answered = line.answer == "200" || key.answered;
            tally.changed += usize::from(key.digest != line.digest);
        }
        tally.processed = keys.values().filter(|key| key.applied > 0).count();
        tally.repeated = keys.values().map(|key| key.processed.saturating_sub(1)).sum();
        tally.applied_twice = keys.values().filter(|key| key.applied > 1).count();
        tally.unanswered = keys.values().filter(|key| !key.answered).count();
        Ok(tally)
    }

    pub fn holds(&self, produced: usize) -> bool {
        self.processed == produced && self.applied_twice == 0 && self.changed == 0
    }

    pub fn line(&self, produced: usize) -> String {
        format!(
            "demo: produced={produced} delivered={} lost={} repeated={} applied_twice={}",
            self.processed,
            produced.saturating_sub(self.processed),
            self.repeated,
            self.applied_twice
        )
    }

    pub fn table(&self, produced: usize, killed: usize, took: Duration) -> String {
        let rows = [
            ("orders produced to Kafka", produced.to_string()),
            ("delivered", self.processed.to_string()),
            ("lost", produced.saturating_sub(self.processed).to_string()),
            ("", String::new()),
            ("relay killed with -9", killed.to_string()),
            ("requests that the receiver got", self.requests.to_string()),
            ("  of them failed by the receiver", self.failed.to_string()),
            ("  of them processed, answer lost", self.lost_answers.to_string()),
            ("  of them repeats of a processed order", self.repeated.to_string()),
            ("orders whose bytes changed between attempts", self.changed.to_string()),
            ("", String::new()),
            ("applied twice, by a receiver that honours the key", self.applied_twice.to_string()),
            ("applied twice, by one that ignores it", self.repeated.to_string()),
            ("", String::new()),
            ("seconds", format!("{:.0}", took.as_secs_f64())),
        ];
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let line = |(name, value): &(&str, String)| {
            if name.is_empty() { String::new() } else { format!("  {name:<width$}  {value:>8}") }
        };
        format!("\n{}\n", rows.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
}
