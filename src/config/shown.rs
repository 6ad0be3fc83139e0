//! Durations and sizes for people: short, and exact where they were written by hand.

use std::time::Duration;

/// A duration in words, its two largest units: `250ms`, `1m 30s`, `24h`, `30d`.
pub fn shown_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    // Up to two days in hours: a day is what people write as 24h.
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let from = units.iter().position(|(name, size)| millis >= *size * if *name == "d" { 2 } else { 1 });
    let Some(from) = from else { return "0s".to_owned() };
    let mut rest = millis;
    let mut parts = Vec::new();
    for (name, size) in units.iter().skip(from).take(2) {
        if rest / size > 0 {
            parts.push(format!("{}{name}", rest / size));
        }
        rest %= size;
    }
    parts.join(" ")
}

/// A size in the largest unit that it is a whole number of.
pub fn shown_size(bytes: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let fits = units.iter().find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size));
    fits.map_or_else(|| format!("{bytes} bytes"), |(name, size)| format!("{}{name}", bytes / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_by_their_two_largest_units() {
        for (millis, text) in [
            (0, "0s"),
            (250, "250ms"),
            (1_500, "1s 500ms"),
            (90_000, "1m 30s"),
            (3_600_000, "1h"),
            (86_400_000, "24h"),
            (172_800_000, "2d"),
            (2_592_000_000, "30d"),
            (90_061_001, "25h 1m"),
        ] {
            assert_eq!(shown_duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn sizes_are_shown_in_the_unit_they_are_whole_in() {
        for (bytes, text) in
            [(4 << 30, "4GiB"), (1 << 20, "1MiB"), (1536, "1536 bytes"), (2048, "2KiB"), (0, "0 bytes")]
        {
            assert_eq!(shown_size(bytes), text);
        }
    }
}
