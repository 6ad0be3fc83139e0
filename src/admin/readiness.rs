//! `/readyz` turns true once every group was joined and Postgres and its schema were found good; a later outage does not
//! turn it false again, because restarting the process would help nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What readiness hangs on.
#[derive(Default)]
pub struct Readiness {
    /// Postgres answered and its schema fits; Kafka told its cluster id.
    pub checked: AtomicBool,
    pub stopping: AtomicBool,
    joined: std::sync::Mutex<Vec<(Arc<str>, Arc<AtomicBool>)>>,
}

impl Readiness {
    /// The process is not ready before this workflow's group was joined.
    pub fn await_joined(&self, workflow: &Arc<str>, joined: &Arc<AtomicBool>) {
        let mut list = self.joined.lock().expect("no holder of this lock panics");
        list.push((Arc::clone(workflow), Arc::clone(joined)));
    }

    /// A workflow that ends is not waited for.
    pub fn forget(&self, workflow: &Arc<str>) {
        self.joined.lock().expect("no holder of this lock panics").retain(|(known, _)| known != workflow);
    }

    /// What it is that the process waits for, if it is not ready.
    pub fn missing(&self) -> Option<String> {
        if self.stopping.load(Ordering::Acquire) {
            return Some("stopping".to_owned());
        }
        if !self.checked.load(Ordering::Acquire) {
            return Some("waiting for Postgres and Kafka".to_owned());
        }
        let joined = self.joined.lock().expect("no holder of this lock panics");
        let missing = joined.iter().find(|(_, joined)| !joined.load(Ordering::Acquire));
        missing.map(|(workflow, _)| format!("workflow {workflow} has not joined its group yet"))
    }
}
