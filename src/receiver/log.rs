//! The receiver's log: one JSON line per request, written before it is answered. What a checker reads.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::behaviour::{Answer, Seen};

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Microseconds since 1970.
    pub time: i64,
    pub key: String,
    pub workflow: String,
    pub event: String,
    pub source: String,
    pub attempt: u32,
    pub fence: i64,
    /// base64 of the body's SHA-256.
    pub digest: String,
    /// What was answered: a status, or how there was none.
    pub answer: String,
    /// Whether this request had the key's one effect.
    pub applied: bool,
}

impl Line {
    pub fn new(seen: &Seen, answer: &Answer, applied: bool) -> Self {
        let answer = match answer {
            Answer::Process => "200".to_owned(),
            Answer::Status(status, _) => status.to_string(),
            Answer::ProcessAndClose => "lost".to_owned(),
            Answer::Close => "closed".to_owned(),
            Answer::Hang => "none".to_owned(),
            Answer::Die => "died".to_owned(),
            Answer::After(..) => "late".to_owned(),
        };
        Self {
            time: jiff::Timestamp::now().as_microsecond(),
            key: seen.key.clone(),
            workflow: seen.workflow.clone(),
            event: seen.event.clone(),
            source: seen.source.clone(),
            attempt: seen.attempt,
            fence: seen.fence,
            digest: seen.digest.clone(),
            answer,
            applied,
        }
    }

    /// Whether the receiver processed this request, had the key been new or not.
    pub fn processed(&self) -> bool {
        self.answer == "200" || self.answer == "lost"
    }
}

pub struct Log(Mutex<File>);

impl Log {
    pub fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path).map(|file| Self(Mutex::new(file)))
    }

    /// One write per line, so that a kill leaves whole lines.
    pub fn write(&self, line: &Line) {
        let mut text = serde_json::to_vec(line).expect("a line encodes to JSON");
        text.push(b'\n');
        let mut file = self.0.lock().expect("no holder of this lock panics");
        if let Err(error) = file.write_all(&text) {
            tracing::error!(%error, "the receiver's log cannot be written");
        }
    }
}

/// The lines of a log; none when there is no file. A last line that was cut off is left out.
pub fn read(path: &Path) -> io::Result<Vec<Line>> {
    match File::open(path) {
        Ok(file) => {
            let lines = BufReader::new(file).lines().map_while(Result::ok);
            Ok(lines.filter_map(|line| serde_json::from_str(&line).ok()).collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
