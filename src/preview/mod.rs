//! One record through a workflow without Kafka and without Postgres: what `oncebox preview` shows and `oncebox test` holds
//! against what was expected.
//!
//! Every step is the product's own: `transform::Transformer` makes the events here, and the verbs make requests of them with
//! `send::request::Template`.

pub mod expectation;
pub mod sample;
pub mod shown;
pub mod walk;

pub use sample::{BadSample, Identity, Sample};
pub use shown::{Masks, Shown};
pub use walk::{Ending, Walk};
