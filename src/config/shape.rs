//! Enters: the merged tree as JSON. Leaves: every place where it does not fit the JSON Schema of `RawConfig`.
//!
//! The schema comes from the same structs that serde fills, so what passes here deserialises. What is allowed at a
//! place is read off the schema by following the value's own path, never off an error's text.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

use super::node::{Content, Node};
use super::problem::{Problem, Problems};
use super::raw::RawConfig;
use super::scalar::FORMATS;

/// The JSON Schema of a configuration, for editors and for the check below.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(RawConfig).to_value();
    schema["title"] = "Oncebox configuration".into();
    schema
}

/// Reports what does not fit, and answers where that is, as JSON pointers.
pub fn check(root: &Node, problems: &mut Problems) -> Vec<String> {
    let schema = schema();
    let mut options = jsonschema::options().should_validate_formats(true);
    for format in FORMATS {
        options = options.with_format(format.name, format.accepts);
    }
    let validator = options.build(&schema).expect("the derived schema is valid");
    let instance = root.without_nulls();
    let mut checked = Checked { schema: &schema, root, problems, misfits: Vec::new() };
    for error in validator.iter_errors(&instance) {
        checked.report(&error);
    }
    checked.misfits
}

struct Checked<'a> {
    schema: &'a Value,
    root: &'a Node,
    problems: &'a mut Problems,
    misfits: Vec<String>,
}

impl Checked<'_> {
    fn report(&mut self, error: &ValidationError<'_>) {
        let pointer = error.instance_path().to_string();
        let node = self.root.nearest(&pointer);
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                for key in unexpected {
                    self.problems.push(unknown_key(self.schema, &pointer, node, key));
                    self.misfits.push(format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")));
                }
            }
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                self.problems.push(Problem::new(node.place.clone(), format!("`{name}` is missing")));
                self.misfits.push(pointer);
            }
            // Of several shapes the one that was meant is that of the value's own kind: its errors say more.
            ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context }
                if error.instance().is_object() || error.instance().is_array() =>
            {
                let of_its_kind = |branch: &&Vec<ValidationError<'_>>| {
                    !branch.is_empty()
                        && !branch.iter().any(|e| {
                            matches!(e.kind(), ValidationErrorKind::Type { .. })
                                && e.instance_path().to_string() == pointer
                        })
                };
                match context.iter().find(of_its_kind) {
                    Some(branch) => branch.iter().for_each(|inner| self.report(inner)),
                    None => self.misfit(&pointer, error.instance()),
                }
            }
            _ => self.misfit(&pointer, error.instance()),
        }
    }

    fn misfit(&mut self, pointer: &str, value: &Value) {
        let node = self.root.nearest(pointer);
        let parts: Vec<&str> = pointer.rsplit('/').collect();
        let name = parts.iter().find(|part| part.parse::<usize>().is_err()).copied().unwrap_or_default();
        let message = node.as_written(format!("{} is not a value for `{name}`", shown(value)));
        let mut problem = Problem::new(node.place.clone(), message);
        problem.allowed =
            subschema(self.schema, pointer).map(|s| describe(self.schema, s)).filter(|text| !text.is_empty());
        self.problems.push(problem);
        self.misfits.push(pointer.to_owned());
    }
}

fn unknown_key(schema: &Value, pointer: &str, node: &Node, key: &str) -> Problem {
    let known: Vec<&str> = subschema(schema, pointer)
        .and_then(|s| properties(schema, s))
        .map(|map| map.keys().map(String::as_str).collect())
        .unwrap_or_default();
    let place = match &node.content {
        Content::Map(_) => node.key_place(key).clone(),
        Content::List(_) | Content::Scalar(_) => node.place.clone(),
    };
    let hint = closest(key, &known).map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
    Problem::new(place, format!("unknown key `{key}`{hint}")).allowed(known.join(", "))
}

/// The offending value, short. Long ones and structures are named, not printed.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
        Value::Null => "nothing (null)".to_owned(),
        Value::String(text) if text.chars().count() > 60 => {
            format!("`{}…`", text.chars().take(60).collect::<String>())
        }
        Value::String(text) => format!("`{text}`"),
        Value::Bool(_) | Value::Number(_) => format!("`{value}`"),
    }
}

fn resolve<'a>(schema: &'a Value, part: &'a Value) -> &'a Value {
    match part.get("$ref").and_then(Value::as_str) {
        Some(reference) => schema.pointer(reference.trim_start_matches('#')).unwrap_or(part),
        None => part,
    }
}

fn branches(part: &Value) -> Vec<&Value> {
    ["anyOf", "oneOf"].iter().filter_map(|key| part.get(key).and_then(Value::as_array)).flatten().collect()
}

fn properties<'a>(schema: &'a Value, part: &'a Value) -> Option<&'a serde_json::Map<String, Value>> {
    let part = resolve(schema, part);
    part.get("properties")
        .and_then(Value::as_object)
        .or_else(|| branches(part).into_iter().find_map(|branch| properties(schema, branch)))
}

/// The part of the schema that governs the value at `pointer`.
fn subschema<'a>(schema: &'a Value, pointer: &str) -> Option<&'a Value> {
    let mut here = schema;
    for part in pointer.split('/').skip(1) {
        here = step(schema, here, part)?;
    }
    Some(here)
}

fn step<'a>(schema: &'a Value, part: &'a Value, key: &str) -> Option<&'a Value> {
    let part = resolve(schema, part);
    properties(schema, part)
        .and_then(|map| map.get(key))
        .or_else(|| part.get("items").filter(|_| key.parse::<usize>().is_ok()))
        .or_else(|| part.get("additionalProperties").filter(|extra| extra.is_object()))
        .or_else(|| branches(part).into_iter().find_map(|branch| step(schema, branch, key)))
}

/// What the schema allows, in words.
fn describe(schema: &Value, part: &Value) -> String {
    let part = resolve(schema, part);
    if let Some(options) = part.get("enum").and_then(Value::as_array) {
        let names: Vec<String> =
            options.iter().map(|o| o.as_str().map_or_else(|| o.to_string(), str::to_owned)).collect();
        return names.join(", ");
    }
    if let Some(value) = part.get("const") {
        return value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    }
    if let Some(format) = part.get("format").and_then(Value::as_str)
        && let Some(known) = FORMATS.iter().find(|f| f.name == format)
    {
        return known.allowed.to_owned();
    }
    if let Some(pattern) = part.get("pattern").and_then(Value::as_str) {
        return format!("text that matches {pattern}");
    }
    let inner: Vec<String> = branches(part)
        .into_iter()
        .filter(|branch| branch.get("type").and_then(Value::as_str) != Some("null"))
        .map(|branch| describe(schema, branch))
        .collect();
    if !inner.is_empty() {
        return inner.join(", or ");
    }
    let range = match (part.get("minimum"), part.get("maximum")) {
        (Some(low), Some(high)) => format!(" from {low} to {high}"),
        (Some(low), None) => format!(" from {low}"),
        (None, Some(high)) => format!(" up to {high}"),
        (None, None) => String::new(),
    };
    let types: Vec<&str> = match part.get("type") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let words: Vec<&str> = types
        .into_iter()
        .filter(|name| *name != "null")
        .map(|name| match name {
            "string" => "text",
            "integer" => "a whole number",
            "number" => "a number",
            "boolean" => "true or false",
            "array" => "a list",
            "object" => "a map",
            other => other,
        })
        .collect();
    format!("{}{range}", words.join(" or "))
}

/// The known name that is at most two edits away.
pub fn closest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (edits(&name.to_lowercase(), &candidate.to_lowercase()), *candidate))
        .filter(|(distance, _)| *distance <= 2)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
