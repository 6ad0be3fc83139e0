//! Every key in which two documents differ, as JSON pointers: what no rule knows is told all the same.

use serde_json::Value;

/// Keys that are not the same in both. One without a value is as good as not written.
pub fn others(old: &Value, new: &Value) -> Vec<String> {
    let mut found = Vec::new();
    differing(Some(old), Some(new), String::new(), &mut found);
    found
}

fn differing(old: Option<&Value>, new: Option<&Value>, here: String, found: &mut Vec<String>) {
    let map = |value: Option<&Value>| match value {
        None | Some(Value::Null) => Some(serde_json::Map::new()),
        Some(Value::Object(entries)) => Some(entries.clone()),
        Some(_) => None,
    };
    let same = old.filter(|value| !value.is_null()) == new.filter(|value| !value.is_null());
    match (map(old), map(new)) {
        _ if same => {}
        (Some(before), Some(after)) => {
            let added = after.keys().filter(|name| !before.contains_key(*name));
            for name in before.keys().chain(added) {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                differing(before.get(name), after.get(name), format!("{here}/{escaped}"), found);
            }
        }
        _ => found.push(here),
    }
}
