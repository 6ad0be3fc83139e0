//! What is made of the values that were found, written as jaq writes it.

use jaq_core::ops::Cmp;

use super::{Condition, Literal, Made, Native, Slot, Unsure, walk};

impl Native {
    /// The output for this text, if there is one.
    pub fn run(&self, text: &str) -> Result<Option<String>, Unsure> {
        let found = walk::find(&self.paths, self.slots, text)?;
        for guard in &self.guards {
            if !guard.holds(&found)? {
                return Ok(None);
            }
        }
        let mut out = String::with_capacity(text.len().min(1 << 10));
        self.made.write(&found, &mut out)?;
        Ok(Some(out))
    }
}

impl Made {
    fn write(&self, found: &[&str], out: &mut String) -> Result<(), Unsure> {
        match self {
            Self::Value(slot) => write_value(*slot, found, out)?,
            Self::Literal(text) => out.push_str(text),
            Self::Object(fields) => {
                out.push('{');
                for (index, (name, made)) in fields.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    out.push_str(name);
                    made.write(found, out)?;
                }
                out.push('}');
            }
            Self::Array(items) => {
                out.push('[');
                for (index, made) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    made.write(found, out)?;
                }
                out.push(']');
            }
            Self::Truth(condition) => out.push_str(if condition.holds(found)? { "true" } else { "false" }),
        }
        Ok(())
    }
}

fn write_value(slot: Slot, found: &[&str], out: &mut String) -> Result<(), Unsure> {
    match found[slot] {
        "" => out.push_str("null"),
        text => walk::copy(text, out)?,
    }
    Ok(())
}

impl Condition {
    fn holds(&self, found: &[&str]) -> Result<bool, Unsure> {
        match self {
            Self::IsTrue(slot) => Ok(!matches!(found[*slot], "" | "null" | "false")),
            Self::Compares(slot, comparison, literal) => compares(found[*slot], *comparison, literal),
            Self::And(left, right) => Ok(left.holds(found)? && right.holds(found)?),
            Self::Or(left, right) => Ok(left.holds(found)? || right.holds(found)?),
            Self::Not(inner) => Ok(!inner.holds(found)?),
        }
    }
}

fn compares(value: &str, comparison: Cmp, literal: &Literal) -> Result<bool, Unsure> {
    let value = if value.is_empty() { "null" } else { value };
    let first = value.as_bytes()[0];
    let is_equal = match literal {
        Literal::Word(word) => value == *word,
        Literal::Text(text) if first == b'"' => {
            if value.contains('\\') {
                return Err(Unsure);
            }
            value == text
        }
        Literal::Text(_) => false,
        Literal::Number(number) if first == b'-' || first.is_ascii_digit() => {
            let value: i64 = walk::sure(value)?.parse().map_err(|_| Unsure)?;
            return Ok(match comparison {
                Cmp::Eq => value == *number,
                Cmp::Ne => value != *number,
                Cmp::Lt => value < *number,
                Cmp::Le => value <= *number,
                Cmp::Gt => value > *number,
                Cmp::Ge => value >= *number,
            });
        }
        Literal::Number(_) => false,
    };
    match comparison {
        Cmp::Eq => Ok(is_equal),
        Cmp::Ne => Ok(!is_equal),
        // Values of different kinds have an order too.
        Cmp::Lt | Cmp::Le | Cmp::Gt | Cmp::Ge => Err(Unsure),
    }
}
