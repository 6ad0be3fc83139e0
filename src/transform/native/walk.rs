//! One walk over a text finds the value of every path; another copies a value as jaq writes it.
//!
//! The text is valid JSON: that was checked when it was decoded.

use super::{Node, Unsure};

/// Deeper values are left to jaq, so that no output comes near the limit here.
const DEEPEST: usize = 64;
/// Objects with more keys too: repeated keys are looked for one by one.
const MOST_KEYS: usize = 64;
/// Digits that every integer of this machine can hold.
const MOST_DIGITS: usize = 18;

/// The values found so far; an empty text where there is none.
type Found<'t> = [&'t str];

/// The values of `slots` paths in a text.
pub fn find<'t>(paths: &Node, slots: usize, text: &'t str) -> Result<Vec<&'t str>, Unsure> {
    let mut found = vec![""; slots];
    let mut walk = Walk { text, at: 0, depth: 0 };
    walk.space();
    walk.look(paths, &mut found)?;
    Ok(found)
}

/// Writes a value without space, as jaq would.
pub fn copy(text: &str, out: &mut String) -> Result<(), Unsure> {
    Walk { text, at: 0, depth: 0 }.copy(out)
}

/// A byte that stands in a JSON string for itself, also when jaq has written it.
pub fn is_plain(byte: u8) -> bool {
    byte >= 0x20 && !matches!(byte, b'"' | b'\\' | 0x7f)
}

struct Walk<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Walk<'t> {
    fn byte(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn space(&mut self) {
        while matches!(self.byte(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
    }

    /// Past this byte and the space after it.
    fn step(&mut self) {
        self.at += 1;
        self.space();
    }

    /// Past a string; its text with the quotes. Not sure about one with escapes.
    fn string(&mut self) -> Result<&'t str, Unsure> {
        let start = self.at;
        let rest = &self.text.as_bytes()[start + 1..];
        let length = rest.iter().position(|byte| !is_plain(*byte)).ok_or(Unsure)?;
        if rest[length] != b'"' {
            return Err(Unsure);
        }
        self.at = start + length + 2;
        Ok(&self.text[start..self.at])
    }

    fn skip_string(&mut self) {
        let bytes = self.text.as_bytes();
        self.at += 1;
        while self.at < bytes.len() && bytes[self.at] != b'"' {
            self.at += if bytes[self.at] == b'\\' { 2 } else { 1 };
        }
        self.at += 1;
    }

    /// Past a number or a word.
    fn scalar(&mut self) -> &'t str {
        let start = self.at;
        while !matches!(self.byte(), b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r' | 0) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    /// Past any value.
    fn skip(&mut self) {
        let mut open = 0_usize;
        loop {
            match self.byte() {
                b'"' => self.skip_string(),
                b'{' | b'[' => {
                    open += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    open -= 1;
                    self.at += 1;
                }
                b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => {
                    self.at += 1;
                    continue;
                }
                0 => return,
                _ => drop(self.scalar()),
            }
            if open == 0 {
                return;
            }
        }
    }

    fn look(&mut self, node: &Node, found: &mut Found<'t>) -> Result<(), Unsure> {
        let start = self.at;
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Unsure);
        }
        match self.byte() {
            _ if node.fields.is_empty() && node.items.is_empty() => self.skip(),
            b'{' if node.items.is_empty() => self.look_into_object(node, found)?,
            b'[' if node.fields.is_empty() => self.look_into_array(node, found)?,
            // Everything below null is null.
            b'n' => drop(self.scalar()),
            _ => return Err(Unsure),
        }
        self.depth -= 1;
        if let Some(slot) = node.slot {
            found[slot] = &self.text[start..self.at];
        }
        Ok(())
    }

    fn look_into_object(&mut self, node: &Node, found: &mut Found<'t>) -> Result<(), Unsure> {
        let mut met = 0_u64;
        self.step();
        while self.byte() != b'}' {
            let quoted = self.string()?;
            let name = &quoted[1..quoted.len() - 1];
            self.space();
            self.step();
            match node.fields.iter().position(|(wanted, _)| wanted == name) {
                Some(index) => {
                    // The last one of a repeated key counts.
                    let bit = 1_u64.checked_shl(u32::try_from(index).map_err(|_| Unsure)?).ok_or(Unsure)?;
                    if met & bit != 0 {
                        return Err(Unsure);
                    }
                    met |= bit;
                    self.look(&node.fields[index].1, found)?;
                }
                None => self.skip(),
            }
            self.space();
            if self.byte() == b',' {
                self.step();
            }
        }
        self.at += 1;
        Ok(())
    }

    fn look_into_array(&mut self, node: &Node, found: &mut Found<'t>) -> Result<(), Unsure> {
        let mut index = 0;
        self.step();
        while self.byte() != b']' {
            match node.items.iter().find(|(wanted, _)| *wanted == index) {
                Some((_, wanted)) => self.look(wanted, found)?,
                None => self.skip(),
            }
            index += 1;
            self.space();
            if self.byte() == b',' {
                self.step();
            }
        }
        self.at += 1;
        Ok(())
    }

    fn copy(&mut self, out: &mut String) -> Result<(), Unsure> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Unsure);
        }
        match self.byte() {
            b'"' => out.push_str(self.string()?),
            b'{' => self.copy_object(out)?,
            b'[' => {
                out.push('[');
                self.step();
                while self.byte() != b']' {
                    self.copy(out)?;
                    self.separator(out);
                }
                out.push(']');
                self.at += 1;
            }
            _ => out.push_str(sure(self.scalar())?),
        }
        self.depth -= 1;
        Ok(())
    }

    fn copy_object(&mut self, out: &mut String) -> Result<(), Unsure> {
        let mut names: Vec<&str> = Vec::new();
        out.push('{');
        self.step();
        while self.byte() != b'}' {
            let name = self.string()?;
            if names.contains(&name) || names.len() == MOST_KEYS {
                return Err(Unsure);
            }
            names.push(name);
            out.push_str(name);
            out.push(':');
            self.space();
            self.step();
            self.copy(out)?;
            self.separator(out);
        }
        out.push('}');
        self.at += 1;
        Ok(())
    }

    fn separator(&mut self, out: &mut String) {
        self.space();
        if self.byte() == b',' {
            out.push(',');
            self.step();
        }
    }
}

/// A number or word that jaq writes as it read it.
pub fn sure(scalar: &str) -> Result<&str, Unsure> {
    let is_integer = scalar.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if is_integer && (scalar.len() > MOST_DIGITS || scalar == "-0") { Err(Unsure) } else { Ok(scalar) }
}
