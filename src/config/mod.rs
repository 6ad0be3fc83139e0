//! Configuration: YAML text in, a checked `Config` out, or every problem at once with its position.
//!
//! ```text
//! text → node (positions) → substitute (${..}) → merge (files, defaults) → shape (schema) → check → Config
//! ```
//!
//! Nothing downstream checks a value again; each stage gets its own part.

mod check;
mod checked;
mod credentials;
mod credentials_check;
mod delivery_check;
mod endpoint_check;
mod limits;
mod load;
pub mod node;
mod parse;
pub mod problem;
pub mod raw;
pub mod raw_delivery;
pub mod raw_endpoint;
pub mod raw_test;
pub mod raw_workflow;
#[cfg(test)]
pub mod sample;
pub mod scalar;
mod secret;
mod secrets_check;
pub mod shape;
pub mod shown;
mod signing_key;
mod substitute;
mod test_check;
mod unique;
mod unsupported;
mod window_check;
mod workflow_check;

pub use checked::{
    Admin, Answers, Backoff, Config, Deduplication, Delivery, Egress, Endpoint, EventType, IdempotencyKey, InDoubt,
    Kafka, Lookup, Postgres, Retries, Source, StartFrom, Token, Topics, Workflow,
};
pub use credentials::{Auth, Certificates, Oauth2, Tls, TlsError};
pub use credentials_check::is_token;
pub use endpoint_check::KEY_IN_URL;
pub use limits::{CircuitBreaker, DeadLetterLimit, RateLimit};
pub use load::{Digest, Loaded, digest, load, read, stored};
pub use raw::{PostgresTlsMode, Role};
pub use raw_workflow::{
    Compression, Encoding, Envelope, Format, Guarantee, Mechanism, Method, OnInvalid, OnKeyFailure, OnOffsetLoss,
    Tombstones, UniqueConflict, UniqueState,
};
pub use secret::{Secret, SecretError};
pub use signing_key::{SigningKey, SigningKeyError};
pub use test_check::{Expect, Test};
pub use unique::{UniquePolicy, is_duration};
pub use unsupported::is_built;
