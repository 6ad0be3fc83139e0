//! Enters: the tree of a file. Leaves: the same tree with `${NAME}`, `${NAME:-default}` and `${file:/path}` filled in.
//!
//! Substitution happens inside scalars after parsing, so that no value can rewrite the YAML around it. `$${` is a
//! literal `${`. What was written is kept beside the value: stored configurations and messages show only that.

use super::node::{Content, Node, Scalar};
use super::problem::{Place, Problem, Problems};

/// Where values come from; the environment and the file system in production, a closure in tests.
pub struct Sources<'a> {
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    pub file: &'a dyn Fn(&str) -> std::io::Result<String>,
}

impl Sources<'static> {
    /// The environment and the file system.
    pub fn system() -> Self {
        Self { variable: &|name| std::env::var(name).ok(), file: &|path| std::fs::read_to_string(path) }
    }
}

pub fn substitute(node: &mut Node, sources: &Sources<'_>, problems: &mut Problems) {
    let place = node.place.clone();
    match &mut node.content {
        Content::Scalar(scalar) => fill(scalar, &place, sources, problems),
        Content::List(items) => items.iter_mut().for_each(|item| substitute(item, sources, problems)),
        Content::Map(entries) => {
            entries.iter_mut().for_each(|entry| substitute(&mut entry.value, sources, problems));
        }
    }
}

/// A piece of a written text.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    Text(&'a str),
    /// The inside of `${NAME}` or `${NAME:-default}`.
    Variable(&'a str),
    /// The path of `${file:/path}`.
    File(&'a str),
    /// A `${` that no brace closes.
    Unclosed,
}

/// Takes a written text apart at its references.
pub fn parts(text: &str) -> Vec<Part<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            // `$${` stands for `${`: the text before it without its dollar, then the two characters themselves.
            found.extend([Part::Text(&rest[..at - 1]), Part::Text("${")]);
            rest = &rest[at + 2..];
            continue;
        }
        found.push(Part::Text(&rest[..at]));
        let Some(end) = rest[at..].find('}') else {
            found.push(Part::Unclosed);
            return found;
        };
        let reference = &rest[at + 2..at + end];
        found.push(match reference.strip_prefix("file:") {
            Some(path) => Part::File(path),
            None => Part::Variable(reference),
        });
        rest = &rest[at + end + 1..];
    }
    found.push(Part::Text(rest));
    found
}

fn fill(scalar: &mut Scalar, place: &Place, sources: &Sources<'_>, problems: &mut Problems) {
    if !scalar.text.contains("${") {
        return;
    }
    let mut out = String::with_capacity(scalar.text.len());
    for part in parts(&scalar.text) {
        let value = match part {
            Part::Text(text) => Ok(text.to_owned()),
            Part::Variable(reference) => resolve(reference, sources),
            // Mounted secrets end in a newline more often than not.
            Part::File(path) => (sources.file)(path)
                .map(|text| text.trim_end_matches(['\n', '\r']).to_owned())
                .map_err(|error| format!("cannot read `{path}` for ${{file:{path}}}: {error}")),
            Part::Unclosed => {
                problems.push(
                    Problem::new(place.clone(), "a reference without its closing brace".to_owned())
                        .allowed("${NAME}, ${NAME:-default}, ${file:/path}, or $${ for a literal ${"),
                );
                return;
            }
        };
        match value {
            Ok(value) => out.push_str(&value),
            Err(message) => problems.push(Problem::new(place.clone(), message)),
        }
    }
    scalar.written = Some(std::mem::replace(&mut scalar.text, out));
}

/// The value of `${NAME}` or `${NAME:-default}`.
pub fn resolve(reference: &str, sources: &Sources<'_>) -> Result<String, String> {
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    let valid = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !valid {
        return Err(format!("`${{{reference}}}` is not a reference; a name has letters, digits and _"));
    }
    (sources.variable)(name)
        .filter(|value| !value.is_empty() || default.is_none())
        .or_else(|| default.map(str::to_owned))
        .ok_or_else(|| format!("the environment variable `{name}` is not set; set it, or write ${{{name}:-default}}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::parse;

    fn load(yaml: &str) -> (serde_json::Value, Problems) {
        let mut problems = Problems::default();
        let file: Arc<str> = "t.yaml".into();
        let mut tree = parse::parse(&file, yaml, &mut problems).expect("the YAML parses");
        let sources = Sources {
            variable: &|name| (name == "PORT").then(|| "8080".to_owned()),
            file: &|path| match path {
                "/secret" => Ok("s3cret: {x}\n".to_owned()),
                _ => Err(std::io::ErrorKind::NotFound.into()),
            },
        };
        substitute(&mut tree, &sources, &mut problems);
        (tree.to_json(), problems)
    }

    #[test]
    fn a_value_cannot_rewrite_the_yaml() {
        let (value, problems) = load("a: ${file:/secret}\n");
        assert!(problems.is_empty(), "{problems}");
        assert_eq!(value, serde_json::json!({"a": "s3cret: {x}"}));
    }

    #[test]
    fn plain_scalars_take_the_type_of_what_was_filled_in() {
        let (value, _) = load("a: ${PORT}\nb: \"${PORT}\"\nc: ${GONE:-none}\nd: $${PORT}\n");
        assert_eq!(value, serde_json::json!({"a": 8080, "b": "8080", "c": "none", "d": "${PORT}"}));
    }

    #[test]
    fn every_missing_reference_is_named_with_its_place() {
        let (_, problems) = load("a: ${GONE}\nb: ${file:/gone}\nc: ${unclosed\n");
        let text = problems.to_string();
        assert!(text.contains("t.yaml:1:4: the environment variable `GONE` is not set"), "{text}");
        assert!(text.contains("t.yaml:2:4: cannot read `/gone`"), "{text}");
        assert!(text.contains("t.yaml:3:4: a reference without its closing brace"), "{text}");
    }
}
