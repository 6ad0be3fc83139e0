//! A tree in which every key and value knows its file, line and column, and what was written before `${..}` was filled in.

use serde_json::Value;

use super::problem::Place;

/// A YAML node with the place it came from.
#[derive(Debug, Clone)]
pub struct Node {
    pub place: Place,
    pub content: Content,
}

#[derive(Debug, Clone)]
pub enum Content {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub key: String,
    pub key_place: Place,
    pub value: Node,
}

/// A scalar keeps its text, so that `${..}` can be substituted before its type is decided.
#[derive(Debug, Clone)]
pub struct Scalar {
    pub text: String,
    /// Plain scalars take the type their text looks like; quoted ones are strings.
    pub plain: bool,
    /// The text as written, when a substitution changed it.
    pub written: Option<String>,
}

impl Node {
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.content {
            Content::Map(entries) => entries.iter().find(|e| e.key == key).map(|e| &e.value),
            Content::List(_) | Content::Scalar(_) => None,
        }
    }

    pub fn items(&self) -> &[Node] {
        match &self.content {
            Content::List(items) => items,
            Content::Map(_) | Content::Scalar(_) => &[],
        }
    }

    /// The node that a JSON pointer names, or the deepest one on the way to it.
    pub fn nearest(&self, pointer: &str) -> &Node {
        let mut here = self;
        for part in pointer.split('/').skip(1) {
            let part = part.replace("~1", "/").replace("~0", "~");
            let next = match &here.content {
                Content::Map(_) => here.get(&part),
                Content::List(items) => part.parse::<usize>().ok().and_then(|i| items.get(i)),
                Content::Scalar(_) => None,
            };
            match next {
                Some(node) => here = node,
                None => return here,
            }
        }
        here
    }

    /// The place of `key` itself inside this map, or of the map.
    pub fn key_place(&self, key: &str) -> &Place {
        match &self.content {
            Content::Map(entries) => entries.iter().find(|e| e.key == key).map_or(&self.place, |e| &e.key_place),
            Content::List(_) | Content::Scalar(_) => &self.place,
        }
    }

    /// A message with this node's value as it was written, never as a reference resolved it: it may be a secret.
    pub fn as_written(&self, message: String) -> String {
        match &self.content {
            Content::Scalar(Scalar { text, written: Some(written), .. }) if !text.is_empty() => {
                message.replace(text.as_str(), written)
            }
            Content::Scalar(_) | Content::List(_) | Content::Map(_) => message,
        }
    }

    /// Takes out the value that a JSON pointer names.
    pub fn remove(&mut self, pointer: &str) {
        let Some((parent, last)) = pointer.rsplit_once('/') else { return };
        let last = last.replace("~1", "/").replace("~0", "~");
        let mut here = self;
        for part in parent.split('/').skip(1) {
            let part = part.replace("~1", "/").replace("~0", "~");
            let next = match &mut here.content {
                Content::Map(entries) => entries.iter_mut().find(|e| e.key == part).map(|e| &mut e.value),
                Content::List(items) => part.parse::<usize>().ok().and_then(|i| items.get_mut(i)),
                Content::Scalar(_) => None,
            };
            let Some(next) = next else { return };
            here = next;
        }
        match &mut here.content {
            Content::Map(entries) => entries.retain(|entry| entry.key != last),
            // An item of a list stays, empty: the others keep their numbers.
            Content::List(items) => {
                if let Some(item) = last.parse::<usize>().ok().and_then(|i| items.get_mut(i)) {
                    item.content = Content::Map(Vec::new());
                }
            }
            Content::Scalar(_) => {}
        }
    }

    /// Keys without a value are as good as not written.
    pub fn without_nulls(&self) -> Value {
        match &self.content {
            Content::Scalar(scalar) => scalar.to_json(),
            Content::List(items) => Value::Array(items.iter().map(Node::without_nulls).collect()),
            Content::Map(entries) => {
                let values = entries.iter().map(|e| (e.key.clone(), e.value.without_nulls()));
                Value::Object(values.filter(|(_, value)| !value.is_null()).collect())
            }
        }
    }

    pub fn to_json(&self) -> Value {
        match &self.content {
            Content::Scalar(scalar) => scalar.to_json(),
            Content::List(items) => Value::Array(items.iter().map(Node::to_json).collect()),
            Content::Map(entries) => {
                Value::Object(entries.iter().map(|e| (e.key.clone(), e.value.to_json())).collect())
            }
        }
    }

    /// The same tree with `${..}` as it was written: what may be stored.
    pub fn to_written_json(&self) -> Value {
        match &self.content {
            Content::Scalar(scalar) => match &scalar.written {
                Some(written) => Value::String(written.clone()),
                None => scalar.to_json(),
            },
            Content::List(items) => Value::Array(items.iter().map(Node::to_written_json).collect()),
            Content::Map(entries) => {
                Value::Object(entries.iter().map(|e| (e.key.clone(), e.value.to_written_json())).collect())
            }
        }
    }
}

impl Scalar {
    fn to_json(&self) -> Value {
        if !self.plain {
            return Value::String(self.text.clone());
        }
        match self.text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => Value::Null,
            "true" | "True" | "TRUE" => Value::Bool(true),
            "false" | "False" | "FALSE" => Value::Bool(false),
            text => {
                let number = text.parse::<i64>().ok().map(Value::from).or_else(|| {
                    let looks_numeric = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
                    text.parse::<f64>().ok().filter(|f| looks_numeric && f.is_finite()).map(Value::from)
                });
                number.unwrap_or_else(|| Value::String(text.to_owned()))
            }
        }
    }
}
