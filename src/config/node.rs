//! Enters: the text of one YAML file. Leaves: a tree in which every key and value knows its file, line and column.
//!
//! The tree is built straight from parser events, because serde stops at its first error and forgets positions, and we
//! report every error at once. Duplicate keys are kept as errors; aliases are expanded under a node budget, so that a
//! small file cannot become a huge tree.

use std::collections::HashMap;
use std::sync::Arc;

use granit_parser::{Event, Parser, ScalarStyle};
use serde_json::Value;

use super::problem::{Place, Problem, Problems};

/// A file of one megabyte written by hand stays far below this; an alias bomb does not.
const MOST_NODES: usize = 200_000;
const DEEPEST: usize = 64;

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

/// Parses one file. Syntax errors end the file; duplicate keys are noted and the first one stands.
pub fn parse(file: &Arc<str>, text: &str, problems: &mut Problems) -> Option<Node> {
    let mut builder = Builder { file, problems, anchors: HashMap::new(), stack: Vec::new(), nodes: 0, root: None };
    for next in Parser::new_from_str(text) {
        let (event, span) = match next {
            Ok(pair) => pair,
            Err(error) => {
                let place = Place::new(file, error.marker().line(), error.marker().col() + 1);
                builder.problems.push(Problem::new(place, format!("not valid YAML: {}", error.kind())));
                return None;
            }
        };
        let place = Place::new(file, span.start.line(), span.start.col() + 1);
        if !builder.take(event, place) {
            return None;
        }
    }
    builder.root
}

enum Open {
    List { place: Place, anchor: usize, items: Vec<Node> },
    Map { place: Place, anchor: usize, entries: Vec<Entry>, key: Option<(String, Place)> },
}

struct Builder<'a> {
    file: &'a Arc<str>,
    problems: &'a mut Problems,
    anchors: HashMap<usize, (Node, usize)>,
    stack: Vec<Open>,
    nodes: usize,
    root: Option<Node>,
}

impl Builder<'_> {
    /// Returns false when the file must be given up.
    fn take(&mut self, event: Event<'_>, place: Place) -> bool {
        match event {
            Event::Scalar(text, style, anchor, _tag) => {
                let scalar = Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain, written: None };
                self.finish(Node { place, content: Content::Scalar(scalar) }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.stack.push(Open::List { place, anchor, items: Vec::new() });
                self.depth_fits()
            }
            Event::MappingStart(_, anchor, _) => {
                self.stack.push(Open::Map { place, anchor, entries: Vec::new(), key: None });
                self.depth_fits()
            }
            Event::SequenceEnd | Event::MappingEnd => match self.stack.pop() {
                Some(Open::List { place, anchor, items }) => {
                    self.finish(Node { place, content: Content::List(items) }, anchor)
                }
                Some(Open::Map { place, anchor, entries, .. }) => {
                    self.finish(Node { place, content: Content::Map(entries) }, anchor)
                }
                None => true,
            },
            // The copy is counted before it is made: a small file must not become a huge tree.
            Event::Alias(id) => match self.anchors.get(&id) {
                Some((_, size)) if self.nodes + size > MOST_NODES => {
                    self.give_up(place, "too many nodes once aliases are expanded")
                }
                Some((node, size)) => {
                    let (node, size) = (node.clone(), *size);
                    self.nodes += size;
                    self.finish(node, 0)
                }
                None => self.give_up(place, "an alias inside its own anchor"),
            },
            Event::DocumentStart(..) if self.root.is_some() => {
                self.give_up(place, "a second YAML document; put it into a file of its own")
            }
            _ => true,
        }
    }

    fn finish(&mut self, node: Node, anchor: usize) -> bool {
        self.nodes += 1;
        if self.nodes > MOST_NODES {
            return self.give_up(node.place, "too many nodes");
        }
        if anchor != 0 {
            let size = count(&node);
            self.anchors.insert(anchor, (node.clone(), size));
        }
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map { entries, key, .. }) => match key.take() {
                None => match node.content {
                    Content::Scalar(scalar) => *key = Some((scalar.text, node.place)),
                    Content::List(_) | Content::Map(_) => {
                        return self.give_up(node.place, "a key that is not a plain name");
                    }
                },
                Some((name, key_place)) => {
                    if let Some(first) = entries.iter().find(|e| e.key == name) {
                        let line = first.key_place.line;
                        self.problems.push(
                            Problem::new(key_place, format!("duplicate key `{name}`"))
                                .allowed(format!("one `{name}`; the first is on line {line}")),
                        );
                    } else {
                        entries.push(Entry { key: name, key_place, value: node });
                    }
                }
            },
        }
        true
    }

    fn depth_fits(&mut self) -> bool {
        if self.stack.len() <= DEEPEST {
            return true;
        }
        let place = Place::new(self.file, 1, 1);
        self.give_up(place, "nested too deeply")
    }

    fn give_up(&mut self, place: Place, what: &str) -> bool {
        self.problems.push(Problem::new(place, what.to_owned()));
        false
    }
}

/// All nodes of a tree. Only anchors are counted this way; everything else is counted as it closes.
fn count(node: &Node) -> usize {
    match &node.content {
        Content::Scalar(_) => 1,
        Content::List(items) => 1 + items.iter().map(count).sum::<usize>(),
        Content::Map(entries) => 1 + entries.iter().map(|entry| count(&entry.value)).sum::<usize>(),
    }
}
