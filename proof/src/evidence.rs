//! What a run leaves behind, one JSON line per fact. The recorders write these files; the checker reads nothing else.
//!
//! | file | who writes it |
//! |---|---|
//! | `meta.json` | the run: what was configured, when it was healed |
//! | `produced.jsonl` | the producer: each record, and whether the broker took it |
//! | `dump.jsonl` | an independent reader of the topic, after the run |
//! | `receiver.jsonl` | the receiver: before it answers, and again when the answer is out |
//! | `audit.jsonl` | triggers in the database: every change of every row, with its transaction |
//! | `tables.jsonl` | the rows at the end |
//! | `nemesis.jsonl` | each fault, when it began and ended |
//! | `samples.jsonl` | what each relay used, before each fault |
//! | `*.log` | the relays |

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Milliseconds since 1970. Everything runs on one machine, so all clocks are one.
pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Meta {
    pub seed: u64,
    pub cluster: String,
    pub topic: String,
    pub topic_id: String,
    pub workflows: Vec<Flow>,
    pub started: i64,
    /// When the last fault was over and the producer had ended.
    pub healed: i64,
    /// When nothing was left to deliver; nothing if that did not come within the limit.
    pub quiet: Option<i64>,
    /// Promotions of a standby that lacked the last commits.
    pub failovers: Vec<Failover>,
    /// Connections to the address that redirects name, which nobody may follow.
    pub decoyed: u64,
    /// A text that stands in the relay's configuration as a secret and nowhere else.
    pub canary: String,
}

/// The secret that requests are signed with, in the form of Standard Webhooks. It has the canary in it, and like it must stand
/// nowhere else.
pub fn signing_secret(canary: &str) -> String {
    format!("whsec_{}", STANDARD.encode(format!("signed-with-{canary}")))
}

/// What the database lost: everything committed in between.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Failover {
    pub lost_from: i64,
    pub promoted: i64,
}

/// The one guarantee under which a second request is wrong.
pub const AT_MOST_ONCE: &str = "at-most-once";
pub const OUTBOX: &str = "transactional-outbox";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Flow {
    pub id: String,
    pub event_type: String,
    pub guarantee: String,
    pub mechanism: String,
    /// The events of one record key go out one after the other.
    pub ordered: bool,
    /// `keyed` or `none`.
    pub envelope: String,
    pub concurrency: u32,
    pub max_attempts: u32,
    /// Its requests carry a signature. Evidence from before there were any has no such field.
    #[serde(default)]
    pub signed: bool,
}

impl Flow {
    /// Whether its events pass the outbox only when they fail.
    pub fn is_direct(&self) -> bool {
        self.mechanism != OUTBOX
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Produced {
    pub n: u64,
    /// `ok`, or `unknown` when the broker's word did not come.
    pub outcome: String,
    pub partition: Option<i32>,
    pub offset: Option<i64>,
}

/// A record as an independent reader found it in the topic.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Dumped {
    pub partition: i32,
    pub offset: i64,
    pub timestamp: i64,
    /// Nothing for a tombstone.
    pub value: Option<String>,
}

/// A request, before it is answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Received {
    pub seq: u64,
    pub at: i64,
    pub workflow: String,
    pub key: String,
    pub event: String,
    pub attempt: u32,
    pub fence: i64,
    pub source: String,
    pub digest: String,
    /// Whether this receiver, which honours the key, had its effect now.
    pub applied: bool,
    pub plan: String,
    /// Nothing for a request without a signature.
    #[serde(default)]
    pub signature: Option<Signature>,
    /// The request's line and its headers as they came, one on each line. Of those whose value is a secret, or has a field of its
    /// own here, only the name. Evidence from before heads were kept has none.
    #[serde(default)]
    pub head: Option<String>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Signature {
    /// Whether it is of the key that both sides know.
    pub verified: bool,
    /// When the request says that it was signed, in whole seconds since 1970.
    pub stamp: i64,
}

/// And what became of the answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Answered {
    pub seq: u64,
    pub at: i64,
    pub status: u16,
    /// Whether its whole head was given to the connection.
    pub whole: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ReceiverLine {
    Received(Received),
    Answered(Answered),
}

/// A change of a row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Audit {
    pub seq: i64,
    pub at: i64,
    pub xid: String,
    pub table: String,
    pub op: String,
    pub old: Option<serde_json::Value>,
    pub new: Option<serde_json::Value>,
}

/// A row at the end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TableRow {
    pub table: String,
    pub row: serde_json::Value,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fault {
    pub at: i64,
    pub fault: String,
    pub target: String,
    /// `begin`, `end` or `once`.
    pub phase: String,
}

/// What a relay used at one moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    pub at: i64,
    pub relay: String,
    pub rss_kib: u64,
    pub open_files: usize,
}

/// A file that lines are appended to, each whole.
pub struct Log(Mutex<File>);

impl Log {
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        Ok(Self(Mutex::new(File::create(path).with_context(|| path.display().to_string())?)))
    }

    pub fn write<T: Serialize>(&self, line: &T) {
        let mut text = serde_json::to_vec(line).expect("evidence is JSON");
        text.push(b'\n');
        // Evidence that cannot be written makes the run worthless.
        self.0.lock().expect("no writer panics").write_all(&text).expect("evidence is written");
    }
}

pub fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Vec<T>> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let mut lines = Vec::new();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line?;
        let parsed = serde_json::from_str(&line).with_context(|| format!("{}:{}", path.display(), number + 1))?;
        lines.push(parsed);
    }
    Ok(lines)
}

/// How many faults of each kind there were.
pub fn count_faults(faults: &[Fault]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for fault in faults.iter().filter(|fault| fault.phase != "end") {
        *counts.entry(fault.fault.clone()).or_default() += 1;
    }
    counts
}
