//! What the process tells about itself: metrics, logs, errors in one line. Used by every stage, uses none of them.

pub mod logging;
mod maker;
pub mod metrics;
#[cfg(any(test, feature = "mutants"))]
pub mod mutant;
pub mod seldom;
pub mod trace;

pub use metrics::{Metrics, WorkflowMetrics};

/// An error with all its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let part = source.to_string();
        if !text.ends_with(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = source.source();
    }
    text
}

/// A place where tests make the process stall, or die at once: the action `return` ends it, as kill -9 does. Nothing at all in a build without the feature.
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        fail::fail_point!($name, |_| std::process::abort());
    };
    ($name:literal, $result:expr) => {
        #[cfg(feature = "failpoints")]
        fail::fail_point!($name, |_| $result);
    };
}

/// Whether a seeded bug is switched on: see `mutant`. Never, unless built for it.
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {{
        #[cfg(feature = "mutants")]
        let on = $crate::observe::mutant::is_on($name);
        #[cfg(not(feature = "mutants"))]
        let on = false;
        on
    }};
}
