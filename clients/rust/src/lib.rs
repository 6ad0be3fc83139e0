//! What an endpoint needs to apply each event of Oncebox once. In reading order: signature, event, once.
//!
//! Bytes and headers enter, [`verify`] says whether to believe them, [`read`] takes the key out, and [`Once::process`] has
//! the effect in the transaction that also holds the key.

mod event;
mod headers;
mod once;
mod signature;

pub use event::{Event, Refused, digest_of, read, read_signed};
pub use once::{Answer, Applied, BoxError, Once, TABLE, Trouble, apply_once, lookup, prune};
pub use signature::{BadSecret, Secret, TOLERANCE, Unverified, verify};
