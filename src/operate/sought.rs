//! Which events somebody asks for, and what does not go together: the same by the API and on the command line.

use super::events::Summary;
use super::{Error, Operator, Page, page_length};

/// As it was asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sought<'a> {
    pub workflow: Option<&'a str>,
    pub state: Option<&'a str>,
    pub key: Option<&'a str>,
    pub source: Option<&'a str>,
    pub after: Option<&'a str>,
    pub limit: Option<usize>,
}

impl Operator {
    /// Events of a record, of a key, or of a workflow by place.
    pub async fn find(&self, sought: Sought<'_>) -> Result<Page<Summary>, Error> {
        let Sought { workflow, state, key, source, after, limit } = sought;
        let others = [("state", state.is_some()), ("after", after.is_some()), ("limit", limit.is_some())];
        if let Some(source) = source {
            alone("source", others.into_iter().chain([("key", key.is_some())]))?;
            return self.events_of_record(source, workflow).await;
        }
        let needed = || Error::Invalid("which workflow? `workflow` or `source` is needed".to_owned());
        let workflow = workflow.ok_or_else(needed)?;
        if let Some(key) = key {
            alone("key", others)?;
            return self.events_of_key(workflow, key).await;
        }
        self.events(workflow, state, after, page_length(limit)?).await
    }
}

/// These find few, and all of them: what would narrow them down or go on behind them is not taken in silence.
fn alone(what: &str, others: impl IntoIterator<Item = (&'static str, bool)>) -> Result<(), Error> {
    match others.into_iter().find(|(_, is_given)| *is_given) {
        Some((other, _)) => Err(Error::Invalid(format!("`{what}` finds all there are: `{other}` does not go with it"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_go_with_a_key_is_named() {
        assert!(alone("key", [("state", false), ("limit", false)]).is_ok());
        let refused = alone("key", [("state", false), ("limit", true)]).map_err(|error| error.to_string());
        assert_eq!(refused, Err("`key` finds all there are: `limit` does not go with it".to_owned()));
    }
}
