//! Reads a `Retry-After` header: seconds, or an HTTP date against `now`. Anything else is as if it were not there.

use std::time::{Duration, SystemTime};

/// Longer waits than this are cut: the policy caps them far lower anyway.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 86_400);

pub fn parse(value: &[u8], now: SystemTime) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // More digits than a number holds is still a number of seconds: the longest.
        return Some(text.parse().map_or(LONGEST, Duration::from_secs).min(LONGEST));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default().min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_garbage_is_not_there() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let seconds = |text: &str| parse(text.as_bytes(), now).map(|d| d.as_secs());
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds(" 0 "), Some(0));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0), "the past means now");
        assert_eq!(seconds("99999999999999999999999999"), Some(LONGEST.as_secs()));
        for garbage in ["", "-1", "1e300", "NaN", "1.5", "soon", "+5", "0x10", "Sun, 06 Nov"] {
            assert_eq!(seconds(garbage), None, "{garbage}");
        }
        assert_eq!(parse(b"\xff", now), None);
    }
}
