//! What a workflow promises and what happens when something fails: enters the workflow as checked and as written, leaves an
//! explanation as data. Pure; `cli::explain` prints it.
//!
//! What an answer does is asked of `send::verdict`, so that explanation and behaviour cannot part. What this build lacks is
//! marked from `config::unsupported`, never by hand.

pub mod answers;
pub mod changes;
pub mod facts;
pub mod failures;
pub mod fate;
mod promise;
pub mod schedule;
pub mod settings;

use serde::Serialize;
use serde_json::Value;

use crate::config::problem::Problem;
use crate::config::{Loaded, Workflow, is_built};
use answers::Answer;
use facts::{Facts, Path};
use schedule::Schedule;
use settings::{Key, Setting};

/// Everything there is to say about one workflow.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    pub workflow: String,
    pub guarantee: &'static str,
    pub mechanism: &'static str,
    pub promise: Vec<String>,
    pub path: Path,
    pub path_means: &'static str,
    /// Keys that this build cannot honour: `run` leaves the workflow out because of them.
    pub not_supported_yet: Vec<Finding>,
    pub receiver: Vec<String>,
    pub key: Key,
    pub retries: Schedule,
    pub answers: Vec<Marked<Answer>>,
    pub ordering: Marked<Setting>,
    pub in_doubt: Marked<Setting>,
    pub windows: Vec<Marked<Setting>>,
    pub limits: Vec<Marked<Setting>>,
    pub failures: Vec<Marked<failures::Row>>,
    /// What the configuration says for people, as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub documentation: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_guidance: Option<Value>,
    pub warnings: Vec<Finding>,
}

/// Something to know about a line of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub place: String,
    pub message: String,
}

/// A part of the explanation, and whether this build does what it says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Marked<T> {
    #[serde(flatten)]
    pub part: T,
    pub in_this_build: bool,
}

pub fn explain(loaded: &Loaded, workflow: &Workflow) -> Explanation {
    let raw = loaded.raw(workflow);
    let facts = Facts::new(workflow, &raw, loaded.config.shutdown_grace);
    let here = format!("/workflows/{}", workflow.index);
    let build = Build { here: &here, lacking: &workflow.unsupported };
    let mark = |setting: Setting| build.mark(setting.pointer, setting);
    // As written: what a reference resolves to may be a secret.
    let written = loaded.tree.nearest(&here).to_written_json();
    let for_people = |key: &str| written.pointer(key).filter(|value| !value.is_null()).cloned();
    Explanation {
        workflow: workflow.id.to_string(),
        guarantee: workflow.delivery.guarantee.as_str(),
        mechanism: workflow.delivery.mechanism.as_str(),
        promise: promise::promise(&facts),
        path: facts.path,
        path_means: promise::path(&facts),
        not_supported_yet: loaded.config.unsupported.iter().chain(&workflow.unsupported).map(Finding::new).collect(),
        receiver: promise::receiver(&facts),
        key: settings::key(&facts),
        retries: schedule::of(&facts),
        answers: answers::of(&facts).into_iter().map(|row| build.mark(row.decided_by, row)).collect(),
        ordering: mark(as_written(loaded, &here, settings::ordering(&facts))),
        in_doubt: mark(settings::in_doubt(&facts)),
        windows: settings::windows(&facts).into_iter().map(mark).collect(),
        limits: settings::limits(&facts).into_iter().map(mark).collect(),
        failures: failures::table(&facts).into_iter().map(|row| build.mark(row.decided_by, row)).collect(),
        documentation: for_people("/delivery/documentation"),
        client_guidance: for_people("/delivery/clientGuidance"),
        warnings: warnings(loaded, &here),
    }
}

/// With what a reference filled in as it was written.
fn as_written(loaded: &Loaded, here: &str, mut setting: Setting) -> Setting {
    setting.means = loaded.tree.nearest(&format!("{here}/delivery/orderingKey")).as_written(setting.means);
    setting
}

/// What `validate` warns about in this workflow, without what is not supported yet.
fn warnings(loaded: &Loaded, here: &str) -> Vec<Finding> {
    let own = format!("{here}/");
    let unsupported: Vec<&str> =
        loaded.config.workflows.iter().flat_map(|w| &w.unsupported).map(|p| p.message.as_str()).collect();
    let of_this =
        |problem: &&Problem| problem.pointer.starts_with(&own) && !unsupported.contains(&problem.message.as_str());
    loaded.warnings.iter().filter(of_this).map(Finding::new).collect()
}

impl Finding {
    fn new(problem: &Problem) -> Self {
        let message = match &problem.allowed {
            Some(allowed) => format!("{}; allowed: {allowed}", problem.message),
            None => problem.message.clone(),
        };
        Self { place: problem.place.to_string(), message }
    }
}

/// What this build lacks of one workflow.
struct Build<'a> {
    here: &'a str,
    lacking: &'a [Problem],
}

/// Keys whose behaviour is on although nobody writes them: that they are not written does not mean that they are built.
const ON_BY_DEFAULT: [&str; 2] = ["/delivery/circuitBreaker", "/delivery/deadLetterLimit"];

impl Build<'_> {
    fn mark<T>(&self, pointer: &str, part: T) -> Marked<T> {
        let used = self.lacking.iter().any(|problem| problem.pointer.strip_prefix(self.here) == Some(pointer));
        let by_default = ON_BY_DEFAULT.contains(&pointer) && !is_built(pointer);
        Marked { part, in_this_build: !used && !by_default }
    }
}
