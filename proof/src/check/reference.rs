//! What must come out of a record, written a second time from the published definitions: which events, under which keys,
//! with which bytes. Nothing here is the relay's.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::evidence::{Dumped, Flow, Meta};

/// What the generator wrote into a record.
#[derive(Debug, Clone, Deserialize)]
struct Payload {
    n: u64,
    fan: u32,
    keep: bool,
    refuse: bool,
    pad: String,
    /// The record's key.
    key: String,
}

/// What must become of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// Each with the SHA-256 of its body, in hexadecimal.
    Events(Vec<Event>),
    Filtered,
    Tombstone,
    Dead,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub key: String,
    pub digest: String,
}

pub fn expected(meta: &Meta, flow: &Flow, record: &Dumped) -> Expected {
    let Some(value) = &record.value else { return Expected::Tombstone };
    let Ok(payload) = serde_json::from_str::<Payload>(value) else { return Expected::Dead };
    // A transform that gives nothing counts as a filter.
    if !payload.keep || payload.fan == 0 {
        return Expected::Filtered;
    }
    let event = |index: u32| {
        let key = key(meta, flow, record, index);
        let pad = serde_json::to_string(&payload.pad).expect("text is JSON");
        let data = format!("[{},{index},{pad},{}]", payload.n, payload.refuse);
        let body = match flow.envelope.as_str() {
            "none" => data,
            _ => format!(
                r#"{{"idempotencyKey":"{key}","eventType":"{}","timestamp":"{}","data":{data}}}"#,
                flow.event_type,
                rfc3339(record.timestamp)
            ),
        };
        Event { key, digest: hex(&Sha256::digest(body.as_bytes())) }
    };
    Expected::Events((0..payload.fan).map(event).collect())
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The key of a record that makes events.
pub fn record_key(record: &Dumped) -> Option<String> {
    Some(serde_json::from_str::<Payload>(record.value.as_ref()?).ok()?.key)
}

/// docs/idempotency-keys.md: each part preceded by its length, four bytes big-endian.
fn encoded(parts: &[&str]) -> Vec<u8> {
    let length = |part: &str| (part.len() as u32).to_be_bytes();
    parts.iter().flat_map(|part| length(part).into_iter().chain(part.bytes()).collect::<Vec<u8>>()).collect()
}

/// The key of an event of a plain record: its Kafka coordinates.
pub fn key(meta: &Meta, flow: &Flow, record: &Dumped, index: u32) -> String {
    let (partition, offset, index) = (record.partition.to_string(), record.offset.to_string(), index.to_string());
    let parts = [
        "oncebox-key-1",
        &flow.id,
        "cluster",
        &meta.cluster,
        "topicId",
        &meta.topic_id,
        "partition",
        &partition,
        "offset",
        &offset,
        "index",
        &index,
    ];
    let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(encoded(&parts)));
    let clean = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let readable: String = meta.topic.chars().map(clean).take(40).collect();
    format!("{readable}-{}", &hash[..22])
}

/// The stream's number: 63 bits of a SHA-256 over workflow, cluster, topic id and partition.
pub fn cursor(meta: &Meta, flow: &Flow, partition: i32) -> i64 {
    let partition = partition.to_string();
    let digest = Sha256::digest(encoded(&[&flow.id, &meta.cluster, &meta.topic_id, &partition]));
    let head: [u8; 8] = digest[..8].try_into().expect("a digest has 32 bytes");
    (u64::from_be_bytes(head) >> 1) as i64
}

/// UTC with milliseconds, from the days of the civil calendar.
pub fn rfc3339(millis: i64) -> String {
    let (days, rest) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second, milli) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1_000 % 60, rest % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(rfc3339(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00.000Z");
    }
}
