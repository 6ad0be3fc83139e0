//! Sets of offsets, as ranges. Pure.

use std::ops::Range;

/// Ranges in order, none empty, none touching another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offsets(Vec<Range<i64>>);

impl From<Range<i64>> for Offsets {
    fn from(range: Range<i64>) -> Self {
        Self::of(vec![range])
    }
}

impl Offsets {
    pub fn of(mut ranges: Vec<Range<i64>>) -> Self {
        ranges.retain(|range| range.start < range.end);
        ranges.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<i64>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                Some(_) | None => merged.push(range),
            }
        }
        Self(merged)
    }

    /// As Postgres writes a multirange: `{[1,5),[7,9)}`.
    pub fn read(text: &str) -> Self {
        let inner = text.trim_matches(['{', '}']);
        let one = |part: &str| {
            let (from, to) = part.trim_matches([',', '[', ')']).split_once(',')?;
            Some(from.parse().ok()?..to.parse().ok()?)
        };
        Self::of(inner.split_inclusive(')').filter_map(one).collect())
    }

    pub fn ranges(&self) -> &[Range<i64>] {
        &self.0
    }

    pub fn count(&self) -> i64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    pub fn with(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).cloned().collect())
    }

    pub fn without(&self, other: &Self) -> Self {
        let (mut left, mut cuts) = (Vec::new(), other.0.iter().peekable());
        for range in &self.0 {
            let mut start = range.start;
            while let Some(cut) = cuts.peek().filter(|cut| cut.start < range.end) {
                left.push(start..cut.start.max(start));
                start = start.max(cut.end);
                // One that reaches into the next range is needed again.
                if cut.end > range.end {
                    break;
                }
                cuts.next();
            }
            left.push(start..range.end);
        }
        Self::of(left)
    }

    /// The same, with holes of up to this length filled.
    pub fn bridged(&self, length: i64) -> Self {
        let grown = self.0.iter().map(|range| range.start..range.end.saturating_add(length)).collect();
        let bridged = Self::of(grown).0.into_iter().map(|range| range.start..range.end - length);
        Self::of(bridged.collect())
    }

    pub fn within(&self, other: &Self) -> Self {
        self.without(&self.without(other))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn set(offsets: &Offsets) -> BTreeSet<i64> {
        offsets.0.iter().cloned().flatten().collect()
    }

    proptest::proptest! {
        #[test]
        fn ranges_behave_as_the_sets_they_stand_for(
            a in proptest::collection::vec((0i64..40, 0i64..8), 0..6),
            b in proptest::collection::vec((0i64..40, 0i64..8), 0..6),
        ) {
            let make = |list: &Vec<(i64, i64)>| Offsets::of(list.iter().map(|(from, length)| *from..from + length).collect());
            let (a, b) = (make(&a), make(&b));
            let (left, right) = (set(&a), set(&b));
            proptest::prop_assert_eq!(set(&a.with(&b)), left.union(&right).copied().collect::<BTreeSet<_>>());
            proptest::prop_assert_eq!(set(&a.without(&b)), left.difference(&right).copied().collect::<BTreeSet<_>>());
            proptest::prop_assert_eq!(set(&a.within(&b)), left.intersection(&right).copied().collect::<BTreeSet<_>>());
            proptest::prop_assert!(left.is_subset(&set(&a.bridged(3))) && a.bridged(3).ranges().len() <= a.ranges().len());
            proptest::prop_assert_eq!(a.bridged(0), a.clone());
            proptest::prop_assert_eq!(a.count(), i64::try_from(left.len()).unwrap());
        }
    }

    #[test]
    fn multiranges_are_read_as_postgres_writes_them() {
        assert_eq!(Offsets::read("{}"), Offsets::default());
        assert_eq!(Offsets::read("{[1,5),[7,9)}"), Offsets::of(vec![1..5, 7..9]));
    }
}
