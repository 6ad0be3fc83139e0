//! Programs that need no interpreter: paths, objects and arrays made of them, literals, `select` by simple comparisons.
//!
//! Enters: a program's text, once, and then valid JSON texts. Leaves: what jaq would give, byte for byte, or that this is not
//! sure; then jaq is asked. Anything out of the ordinary is not sure: an escape, a repeated key, a path through a number.

mod make;
mod walk;

use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Term};
use jaq_core::ops::Cmp;
use jaq_core::path::{Opt, Part};

/// Where the value of a path is kept while a text is looked at.
type Slot = usize;

#[derive(Debug)]
pub struct Native {
    paths: Node,
    slots: usize,
    guards: Vec<Condition>,
    made: Made,
}

/// Not for certain what jaq would say.
#[derive(Debug)]
pub struct Unsure;

/// What is looked for below a value.
#[derive(Debug, Default)]
struct Node {
    slot: Option<Slot>,
    fields: Vec<(String, Node)>,
    items: Vec<(usize, Node)>,
}

/// What an output is made of.
#[derive(Debug)]
enum Made {
    Value(Slot),
    Literal(String),
    /// Each with its name as it is written: `"name":`.
    Object(Vec<(String, Made)>),
    Array(Vec<Made>),
    Truth(Condition),
}

#[derive(Debug)]
enum Condition {
    IsTrue(Slot),
    Compares(Slot, Cmp, Literal),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Not(Box<Condition>),
}

#[derive(Debug, PartialEq, Eq)]
enum Literal {
    /// `null`, `true` or `false`.
    Word(&'static str),
    Number(i64),
    /// With its quotes.
    Text(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Item(usize),
}

impl Native {
    /// Nothing for a program that is more than this.
    pub fn compile(text: &str) -> Option<Self> {
        let term = jaq_core::load::parse(text, |parser| parser.term())?;
        let mut native = Self { paths: Node::default(), slots: 0, guards: Vec::new(), made: Made::Array(Vec::new()) };
        let mut base = Vec::new();
        let stages = stages(&term);
        let (last, before) = stages.split_last()?;
        for stage in before {
            match stage {
                Term::Call("select", arguments) => native.guard(arguments, &base)?,
                other => native.descend(other, &mut base)?,
            }
        }
        native.made = match last {
            Term::Call("select", arguments) => {
                native.guard(arguments, &base)?;
                Made::Value(native.slot(&base))
            }
            Term::Call("not", arguments) if arguments.is_empty() => {
                let is_true = Condition::IsTrue(native.slot(&base));
                Made::Truth(Condition::Not(Box::new(is_true)))
            }
            other => native.made(other, &base)?,
        };
        Some(native)
    }

    fn guard(&mut self, arguments: &[Term<&str>], base: &[Step]) -> Option<()> {
        let [condition] = arguments else { return None };
        let condition = self.condition(condition, base)?;
        self.guards.push(condition);
        Some(())
    }

    /// A stage of a pipe that leads further into the value. That it can be gone is looked at, needed later or not.
    fn descend(&mut self, stage: &Term<&str>, base: &mut Vec<Step>) -> Option<()> {
        *base = path(stage, base)?;
        self.slot(base);
        Some(())
    }

    fn made(&mut self, term: &Term<&str>, base: &[Step]) -> Option<Made> {
        if let Some(path) = path(term, base) {
            return Some(Made::Value(self.slot(&path)));
        }
        if let Some(literal) = literal(term) {
            return Some(Made::Literal(literal.written()));
        }
        match term {
            Term::Obj(entries) => {
                let mut fields: Vec<(String, Made)> = Vec::new();
                for (name, value) in entries {
                    let name = plain_text(name)?;
                    let made = match value {
                        Some(value) => self.made(value, base)?,
                        None => Made::Value(self.slot(&[base, &[Step::Field(name.clone())]].concat())),
                    };
                    let written = format!("\"{name}\":");
                    if fields.iter().any(|(known, _)| *known == written) {
                        return None;
                    }
                    fields.push((written, made));
                }
                Some(Made::Object(fields))
            }
            Term::Arr(None) => Some(Made::Array(Vec::new())),
            Term::Arr(Some(items)) => {
                let items: Option<Vec<Made>> = listed(items).into_iter().map(|item| self.made(item, base)).collect();
                items.map(Made::Array)
            }
            Term::BinOp(_, BinaryOp::Pipe(None), _) => {
                let mut base = base.to_vec();
                let stages = stages(term);
                let (last, before) = stages.split_last()?;
                for stage in before {
                    self.descend(stage, &mut base)?;
                }
                self.made(last, &base)
            }
            Term::BinOp(_, BinaryOp::Cmp(_) | BinaryOp::And | BinaryOp::Or, _) => {
                self.condition(term, base).map(Made::Truth)
            }
            _ => None,
        }
    }

    fn condition(&mut self, term: &Term<&str>, base: &[Step]) -> Option<Condition> {
        if let Some(path) = path(term, base) {
            return Some(Condition::IsTrue(self.slot(&path)));
        }
        let Term::BinOp(left, operator, right) = term else { return None };
        match operator {
            BinaryOp::Cmp(comparison) => {
                let (path, literal) = (path(left, base)?, literal(right)?);
                let is_ordered = !matches!(comparison, Cmp::Eq | Cmp::Ne);
                if is_ordered && !matches!(literal, Literal::Number(_)) {
                    return None;
                }
                Some(Condition::Compares(self.slot(&path), *comparison, literal))
            }
            BinaryOp::And => {
                Some(Condition::And(self.condition(left, base)?.into(), self.condition(right, base)?.into()))
            }
            BinaryOp::Or => {
                Some(Condition::Or(self.condition(left, base)?.into(), self.condition(right, base)?.into()))
            }
            BinaryOp::Pipe(None) => {
                let Term::Call("not", arguments) = &**right else { return None };
                let inner = self.condition(left, base).filter(|_| arguments.is_empty())?;
                Some(Condition::Not(inner.into()))
            }
            _ => None,
        }
    }

    /// Where the value at a path is kept; one place for each path.
    fn slot(&mut self, path: &[Step]) -> Slot {
        let mut node = &mut self.paths;
        for step in path {
            node = match step {
                Step::Field(name) => child(&mut node.fields, name),
                Step::Item(index) => child(&mut node.items, index),
            };
        }
        *node.slot.get_or_insert_with(|| {
            self.slots += 1;
            self.slots - 1
        })
    }
}

fn child<'a, K: PartialEq + Clone>(children: &'a mut Vec<(K, Node)>, key: &K) -> &'a mut Node {
    let known = children.iter().position(|(name, _)| name == key);
    let index = known.unwrap_or_else(|| {
        children.push((key.clone(), Node::default()));
        children.len() - 1
    });
    &mut children[index].1
}

impl Literal {
    fn written(&self) -> String {
        match self {
            Self::Word(word) => (*word).to_owned(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// The parts of a pipe, in order.
fn stages<'a, 's>(term: &'a Term<&'s str>) -> Vec<&'a Term<&'s str>> {
    match term {
        Term::BinOp(left, BinaryOp::Pipe(None), right) => [stages(left), stages(right)].concat(),
        other => vec![other],
    }
}

/// What stands between commas.
fn listed<'a, 's>(term: &'a Term<&'s str>) -> Vec<&'a Term<&'s str>> {
    match term {
        Term::BinOp(left, BinaryOp::Comma, right) => [listed(left), listed(right)].concat(),
        other => vec![other],
    }
}

/// The path that a term is, from the value at `base`.
fn path(term: &Term<&str>, base: &[Step]) -> Option<Vec<Step>> {
    match term {
        Term::Id => Some(base.to_vec()),
        Term::Path(inner, parts) => {
            let mut steps = path(inner, base)?;
            for (part, optional) in &parts.0 {
                let (Part::Index(index), Opt::Essential) = (part, optional) else { return None };
                steps.push(match index {
                    Term::Num(digits) => Step::Item(digits.parse().ok().filter(|index| *index < 1_000_000)?),
                    name => Step::Field(plain_text(name)?),
                });
            }
            Some(steps)
        }
        _ => None,
    }
}

fn literal(term: &Term<&str>) -> Option<Literal> {
    match term {
        Term::Num(digits) => digits.parse::<i64>().ok().filter(|n| n.to_string() == *digits).map(Literal::Number),
        Term::Call(word, arguments) if arguments.is_empty() => {
            ["null", "true", "false"].into_iter().find(|known| known == word).map(Literal::Word)
        }
        text => Some(Literal::Text(format!("\"{}\"", plain_text(text)?))),
    }
}

/// Text without interpolation that JSON writes as it is.
fn plain_text(term: &Term<&str>) -> Option<String> {
    let Term::Str(None, parts) = term else { return None };
    let mut text = String::new();
    for part in parts {
        match part {
            StrPart::Str(piece) => text.push_str(piece),
            StrPart::Term(_) | StrPart::Char(_) => return None,
        }
    }
    text.bytes().all(walk::is_plain).then_some(text)
}

#[cfg(test)]
mod tests;
