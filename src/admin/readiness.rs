//! `/readyz` turns true once every group was joined, or Kafka has forbidden it, and Postgres and its schema were found good; a later
//! outage does not turn it false again, because restarting the process would help nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::event::{Joining, Refusal};

/// What readiness hangs on.
#[derive(Default)]
pub struct Readiness {
    /// Postgres answered and its schema fits; Kafka told its cluster id.
    pub checked: AtomicBool,
    pub stopping: AtomicBool,
    joining: std::sync::Mutex<Vec<(Arc<str>, Arc<Joining>)>>,
}

impl Readiness {
    /// The process is not ready before this workflow's group was joined, or Kafka has forbidden it: the others can do their work.
    pub fn await_joined(&self, workflow: &Arc<str>, joining: &Arc<Joining>) {
        let mut list = self.joining.lock().expect("no holder of this lock panics");
        list.push((Arc::clone(workflow), Arc::clone(joining)));
    }

    /// What Kafka forbids this process of a workflow, if it does.
    pub fn refusal(&self, workflow: &str) -> Option<Refusal> {
        let joining = self.joining.lock().expect("no holder of this lock panics");
        joining.iter().filter(|(known, _)| **known == *workflow).find_map(|(_, joining)| joining.refusal())
    }

    /// A workflow that ends is not waited for.
    pub fn forget(&self, workflow: &Arc<str>) {
        self.joining.lock().expect("no holder of this lock panics").retain(|(known, _)| known != workflow);
    }

    /// What it is that the process waits for, if it is not ready.
    pub fn missing(&self) -> Option<String> {
        if self.stopping.load(Ordering::Acquire) {
            return Some("stopping".to_owned());
        }
        if !self.checked.load(Ordering::Acquire) {
            return Some("waiting for Postgres and Kafka".to_owned());
        }
        let joining = self.joining.lock().expect("no holder of this lock panics");
        let missing = joining.iter().find(|(_, joining)| !joining.is_over());
        missing.map(|(workflow, _)| format!("workflow {workflow} has not joined its group yet"))
    }
}
