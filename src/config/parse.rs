//! Enters: the text of one YAML file. Leaves: a tree in which every key and value knows its file, line and column.
//!
//! The tree is built straight from parser events, because serde stops at its first error and forgets positions, and we
//! report every error at once. Duplicate keys are kept as errors; aliases are expanded under a node budget, so that a
//! small file cannot become a huge tree.

use std::collections::HashMap;
use std::sync::Arc;

use granit_parser::{Event, Parser, ScalarStyle};

use super::node::{Content, Entry, Node, Scalar};
use super::problem::{Place, Problem, Problems};

/// A file of one megabyte written by hand stays far below this; an alias bomb does not.
const MOST_NODES: usize = 200_000;
const DEEPEST: usize = 64;

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
