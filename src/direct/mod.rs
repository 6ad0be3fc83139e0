//! The path without Postgres. Enters: batches of one workflow's partitions, transformed. Leaves: events in offset order for
//! the relay, and how far each partition is delivered.
//!
//! What must hold: the offset that is marked in Kafka passes a record only when all its events are delivered or stored.
//! `ingest` puts parcels in, `relay` takes them out; the two meet here as they meet in `outbox`.

pub mod window;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use tokio::sync::mpsc::UnboundedSender;

use crate::outbox::batch::{Batch, Holding};
use crate::outbox::direct::Spot;

/// The way from a workflow's consumer to its dispatcher. Bounded by what the consumer may have read ahead.
pub type Desk = UnboundedSender<Parcel>;

pub enum Parcel {
    Open(Opening),
    Batch(Batch),
    Close(Closing),
}

/// A partition was taken: batches of it follow.
pub struct Opening {
    pub holding: Arc<Holding>,
    /// The next offset to read.
    pub from: i64,
    pub generation: i32,
    /// Events from there on that are stored already.
    pub spilled: HashSet<Spot>,
}

/// A partition is given up: nothing more of it is started.
pub struct Closing {
    pub holding: Arc<Holding>,
    /// Dropped once everything that was started is delivered or stored.
    pub finished: Sender<()>,
}
