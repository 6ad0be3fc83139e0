//! Oncebox reads events from Kafka, transforms them, and delivers each one to a client's HTTP endpoint under the guarantee
//! that the workflow's YAML asks for.
//!
//! # The walk of one event, file by file
//!
//! ```text
//! Kafka ─ ingest ─ transform ─┬─ outbox ──┬─ relay ── send ── endpoint
//!                             └─ direct ──┘             └─ verdict → settle / retry / dead letter
//! ```
//!
//! 1. [`config`]: the YAML says what flows where and what is promised.
//! 2. [`event`]: the nouns. An event's identity is its place in Kafka.
//! 3. [`ingest`]: a consumer reads from the stored cursor and gathers records per partition.
//! 4. [`transform`]: bytes become a value, a filter keeps or drops it, a program makes events of it, each gets its key.
//! 5. [`outbox`]: one statement stores the events, moves the cursor and claims their first attempts; or [`direct`]: the
//!    events go straight on, and their offset is marked once all are delivered or, failing that, stored.
//! 6. [`relay`]: a dispatcher per workflow decides what may be sent now, and under which right.
//! 7. [`send`]: one attempt, one deadline; the verdict says what its outcome means.
//! 8. [`relay::settler`] and [`outbox::settle`] write it down: done, to be tried again, or dead.
//! 9. [`dead_letter`]: what was given up, to be looked at and replayed.
//!
//! Beside the walk: [`observe`] (metrics, logs), [`operate`] (what operators see and decide), [`admin`] (the same over HTTP, with health, metrics and the
//! dashboard), [`preflight`] and [`run`] (check and
//! start all), [`process`], [`stages`], [`reload`] and `exchange` (what runs, per workflow, and how it is exchanged), [`upkeep`] (gauges, operators' decisions), [`explain`] (what a workflow promises, as data),
//! [`preview`] (one record without servers), [`verify`] (that nothing was lost, proven), [`receiver`] (a reference endpoint), [`demo`], [`cli`].

pub mod config;
pub mod dead_letter;
pub mod direct;
pub mod event;
pub mod ingest;
pub mod outbox;
pub mod relay;
pub mod send;
pub mod transform;

pub mod admin;
pub mod cli;
pub mod demo;
mod exchange;
pub mod explain;
mod export;
pub mod observe;
pub mod operate;
pub mod preflight;
pub mod preview;
pub mod process;
pub mod receiver;
pub mod reload;
pub mod run;
pub mod stages;
pub mod upkeep;
pub mod verify;
