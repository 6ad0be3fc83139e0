//! `oncebox validate` and `oncebox schema`.

use super::{ConfigPath, Failure, load};
use crate::config::shape;

pub fn validate(path: &ConfigPath) -> Result<(), Failure> {
    let loaded = load(&path.config)?;
    for warning in &loaded.warnings {
        println!("warning: {warning}");
    }
    let workflows = loaded.config.workflows.len();
    println!(
        "valid: {workflows} workflow{}, {} warnings",
        if workflows == 1 { "" } else { "s" },
        loaded.warnings.len()
    );
    Ok(())
}

pub fn schema() -> Result<(), Failure> {
    println!("{}", serde_json::to_string_pretty(&shape::schema())?);
    Ok(())
}
