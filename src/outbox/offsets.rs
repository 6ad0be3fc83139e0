//! Offset arithmetic, pure: ranges for the ledger, and what a partition's stored offset means against its log.

use crate::config::OnOffsetLoss;

/// Sorted offsets as the text of a Postgres int8multirange, neighbours joined: `{[3,6),[9,10)}`.
pub fn multirange(offsets: &[i64]) -> String {
    let mut out = String::from("{");
    let mut at = 0;
    while at < offsets.len() {
        let first = offsets[at];
        let mut last = first;
        while at + 1 < offsets.len() && offsets[at + 1] == last + 1 {
            at += 1;
            last = offsets[at];
        }
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(&format!("[{first},{})", last + 1));
        at += 1;
    }
    out.push('}');
    out
}

/// The offsets that a partition's log has: the first still kept, and the one after the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    pub low: i64,
    pub high: i64,
}

/// Whether a stored offset can be read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Readable,
    /// Retention has removed `[next, low)`.
    Behind,
    /// The log ends before the stored offset: it was truncated or restored.
    Beyond,
}

pub fn standing(next_offset: i64, log: Log) -> Standing {
    if next_offset < log.low {
        Standing::Behind
    } else if next_offset > log.high {
        Standing::Beyond
    } else {
        Standing::Readable
    }
}

/// Where to go on after a loss; `None` halts the workflow.
pub fn after_loss(policy: OnOffsetLoss, log: Log) -> Option<i64> {
    match policy {
        OnOffsetLoss::Halt => None,
        OnOffsetLoss::Earliest => Some(log.low),
        OnOffsetLoss::Latest => Some(log.high),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_join_into_one_range() {
        assert_eq!(multirange(&[]), "{}");
        assert_eq!(multirange(&[3, 4, 5, 9]), "{[3,6),[9,10)}");
    }

    #[test]
    fn a_stored_offset_outside_the_log_is_a_loss() {
        let log = Log { low: 10, high: 20 };
        let standings = [9, 10, 15, 20, 21].map(|next| standing(next, log));
        use Standing::{Behind, Beyond, Readable};
        assert_eq!(standings, [Behind, Readable, Readable, Readable, Beyond]);
        assert_eq!(after_loss(OnOffsetLoss::Halt, log), None);
        assert_eq!(after_loss(OnOffsetLoss::Earliest, log), Some(10));
        assert_eq!(after_loss(OnOffsetLoss::Latest, log), Some(20));
    }

    proptest! {
        #[test]
        fn a_multirange_holds_exactly_the_offsets_it_was_made_of(set in proptest::collection::btree_set(0i64..200, 0..60)) {
            let offsets: Vec<i64> = set.into_iter().collect();
            let text = multirange(&offsets);
            let mut read = Vec::new();
            for range in text.trim_matches(['{', '}']).split("),").filter(|r| !r.is_empty()) {
                let (from, to) = range.trim_matches(['[', ')']).split_once(',').unwrap();
                read.extend(from.parse::<i64>().unwrap()..to.parse::<i64>().unwrap());
            }
            prop_assert_eq!(read, offsets);
        }
    }
}
