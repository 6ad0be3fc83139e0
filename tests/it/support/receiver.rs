//! The reference receiver inside the test's process.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;

use oncebox::receiver::{Answer, Line, Receiver, Seen, log};

use super::unique;

pub struct TestReceiver {
    pub receiver: Receiver,
    log: PathBuf,
    seen: Arc<Mutex<Vec<Seen>>>,
    _folder: tempfile::TempDir,
}

impl TestReceiver {
    /// Answers 200 to everything.
    pub async fn start() -> Self {
        Self::deciding(|_| Answer::Process).await
    }

    pub async fn deciding(decide: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join(unique("receiver"));
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let kept = Arc::clone(&seen);
        let decide = Arc::new(move |one: &Seen| {
            kept.lock().unwrap().push(one.clone());
            decide(one)
        });
        let receiver = Receiver::start("127.0.0.1:0".parse().unwrap(), &log, decide).await.expect("a receiver");
        Self { receiver, log, seen, _folder: folder }
    }

    pub fn url(&self) -> String {
        format!("http://{}/events", self.receiver.address)
    }

    pub fn lines(&self) -> Vec<Line> {
        log::read(&self.log).expect("the log is readable")
    }

    /// Every request with headers and body, in order of arrival.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub fn applied(&self) -> usize {
        self.receiver.applied()
    }
}
