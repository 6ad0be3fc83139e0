//! What is wrong with a configuration: a place, what stands there, and what may stand there.
//!
//! All problems of a load are collected and printed together, in file order; warnings share the form.

use std::fmt;
use std::sync::Arc;

/// File, line and column, both counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub file: Arc<str>,
    pub line: usize,
    pub column: usize,
}

impl Place {
    pub fn new(file: &Arc<str>, line: usize, column: usize) -> Self {
        Self { file: Arc::clone(file), line, column }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

#[derive(Debug, Clone)]
pub struct Problem {
    pub place: Place,
    pub message: String,
    pub allowed: Option<String>,
    /// The key it is about, as a JSON pointer; empty when it is about the text itself.
    pub pointer: String,
}

impl Problem {
    pub fn new(place: Place, message: String) -> Self {
        Self { place, message, allowed: None, pointer: String::new() }
    }

    #[must_use]
    pub fn about(mut self, pointer: &str) -> Self {
        pointer.clone_into(&mut self.pointer);
        self
    }

    #[must_use]
    pub fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = Some(allowed.into());
        self
    }

    /// What is wrong and what is allowed, without the place.
    pub fn text(&self) -> String {
        match &self.allowed {
            Some(allowed) => format!("{}; allowed: {allowed}", self.message),
            None => self.message.clone(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text())
    }
}

/// Every problem found in one load.
#[derive(Debug, Default, Clone)]
pub struct Problems(Vec<Problem>);

impl Problems {
    pub fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// In file order. A default or an alias shows its problem at every use.
    pub fn sorted(mut self) -> Vec<Problem> {
        self.0.sort_by(|a, b| a.place.cmp(&b.place).then_with(|| a.message.cmp(&b.message)));
        self.0
    }
}

/// Of problems in order, each line once, however many workflows share it.
pub fn each_once(sorted: &[Problem]) -> Vec<&Problem> {
    let mut lines: Vec<&Problem> = sorted.iter().collect();
    lines.dedup_by(|a, b| a.place == b.place && a.message == b.message);
    lines
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in each_once(&self.clone().sorted()).into_iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
