//! Who an event is: its place, as cursor, offset, index within its record, generation.
//!
//! It is the same however often the record is read again, so no sequence can hand it to another event.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// The stream of one workflow over one incarnation of one topic's partition: 63 bits of a SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CursorId(pub i64);

impl CursorId {
    pub fn of(workflow: &str, cluster: &str, topic_id: &str, partition: i32) -> Self {
        let partition = partition.to_string();
        let parts = [workflow, cluster, topic_id, &partition];
        let digest = Sha256::digest(encode_components(parts.iter().map(|part| part.as_bytes())));
        let head: [u8; 8] = digest[..8].try_into().expect("a digest has 32 bytes");
        Self((u64::from_be_bytes(head) >> 1) as i64)
    }
}

/// A list of byte strings as one byte string. Each is preceded by its length, four bytes big-endian, so that two
/// different lists never give the same bytes.
pub fn encode_components<'a>(components: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    for component in components {
        encode_component(&mut out, component);
    }
    out
}

pub fn encode_component(out: &mut Vec<u8>, component: &[u8]) {
    let length = u32::try_from(component.len()).expect("a component is far below 4 GiB");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(component);
}

/// The list that was encoded.
pub fn decode_components(mut encoded: &[u8]) -> Vec<&[u8]> {
    let mut components = Vec::new();
    while let Some((length, rest)) = encoded.split_first_chunk() {
        let (component, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        components.push(component);
        encoded = rest;
    }
    components
}

/// An event's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    pub cursor: CursorId,
    pub offset: i64,
    pub index: i32,
    /// 0 as read from Kafka, higher for an operator's replay.
    pub generation: i32,
}

impl Place {
    /// Whether an operator made it of a dead letter. A record that is read again on purpose begins at the next thousand:
    /// sql/ingest/rewind_cursor.sql.
    pub fn is_replay(&self) -> bool {
        self.generation % 1000 != 0
    }
}

const BASE32: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cursor = self.cursor.0 as u64;
        let mut text = String::with_capacity(13);
        for shift in (0..13).rev() {
            text.push(char::from(BASE32[(cursor >> (5 * shift)) as usize & 31]));
        }
        write!(f, "{text}-{}-{}", self.offset, self.index)?;
        if self.generation > 0 { write!(f, ".r{}", self.generation) } else { Ok(()) }
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not an event id; one looks like 0k3m7pqr2s4tv-1042-0")]
pub struct NotAnEventId(String);

impl FromStr for Place {
    type Err = NotAnEventId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_place(text).ok_or_else(|| NotAnEventId(text.to_owned()))
    }
}

fn parse_place(text: &str) -> Option<Place> {
    let (base, generation) = match text.split_once(".r") {
        Some((base, generation)) => (base, generation.parse().ok().filter(|g| *g > 0)?),
        None => (text, 0),
    };
    let (cursor, rest) = base.split_once('-')?;
    let (offset, index) = rest.rsplit_once('-')?;
    if cursor.len() != 13 {
        return None;
    }
    let mut value: u64 = 0;
    for byte in cursor.bytes() {
        let digit = BASE32.iter().position(|known| *known == byte)?;
        value = value.checked_mul(32)? | digit as u64;
    }
    let cursor = CursorId(i64::try_from(value).ok()?);
    Some(Place { cursor, offset: offset.parse().ok()?, index: index.parse().ok()?, generation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_ids_read_back_as_they_were_written() {
        for place in [
            Place { cursor: CursorId(i64::MAX), offset: i64::MAX, index: 9_999, generation: 3 },
            Place { cursor: CursorId(0), offset: 0, index: 0, generation: 0 },
            Place { cursor: CursorId::of("w", "c", "t", 1), offset: 42, index: 1, generation: 1000 },
        ] {
            assert_eq!(place.to_string().parse::<Place>().as_ref(), Ok(&place));
        }
        for text in [
            "",
            "abc",
            "0000000000000-1",
            "0000000000000-1-x",
            "000000000000u-1-0",
            "zzzzzzzzzzzzz-1-0",
            "0000000000000-1-0.r0",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_replay_is_told_from_a_record_that_is_read_again() {
        let of = |generation| Place { cursor: CursorId(1), offset: 1, index: 0, generation };
        let replays = [0, 1, 1000, 1001, 2000].map(|generation| of(generation).is_replay());
        assert_eq!(replays, [false, true, false, true, false]);
    }

    #[test]
    fn a_cursor_depends_on_every_part_of_its_name() {
        let base = CursorId::of("w", "c", "t", 1);
        for other in [
            CursorId::of("x", "c", "t", 1),
            CursorId::of("w", "d", "t", 1),
            CursorId::of("w", "c", "u", 1),
            CursorId::of("w", "c", "t", 2),
            CursorId::of("wc", "", "t", 1),
        ] {
            assert_ne!(base, other);
        }
    }

    proptest::proptest! {
        #[test]
        fn different_component_lists_never_encode_alike(
            a in proptest::collection::vec(proptest::collection::vec(0u8..4, 0..5), 0..5),
            b in proptest::collection::vec(proptest::collection::vec(0u8..4, 0..5), 0..5),
        ) {
            let encode = |list: &Vec<Vec<u8>>| encode_components(list.iter().map(Vec::as_slice));
            proptest::prop_assert_eq!(a == b, encode(&a) == encode(&b));
            let encoded = encode(&a);
            proptest::prop_assert_eq!(decode_components(&encoded), a.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
    }
}
