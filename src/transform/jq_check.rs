//! What a jq program may be: its text enters, and leaves as it is, or as a sentence that says why not.

/// Parsing, running and dropping a program descend into it. More than anybody writes, and brackets that a stack holds; a chain of
/// thousands of operators may still be too much for it.
const LONGEST: usize = 16 << 10;
const DEEPEST: usize = 48;

/// Natives and definitions that are left out, and with them what is defined by them.
pub const REFUSED: [&str; 22] = [
    "$ENV",
    "$__prog_args",
    "debug",
    "debug_empty",
    "env",
    "get_search_list",
    "halt",
    "halt_error",
    "input",
    "input_filename",
    "input_line_number",
    "inputs",
    "localtime",
    "mktime_local",
    "now",
    "repl",
    "stderr",
    "stderr_empty",
    "strflocaltime",
    "strptime",
    "rand",
    "limit_time",
];

/// Refuses what is too long or too deep.
pub fn bounded(text: &str) -> Result<(), String> {
    if text.len() > LONGEST {
        return Err(format!("a program of {} bytes is too long: at most {LONGEST}", text.len()));
    }
    let mut depth = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return Err(format!("a program with more than {DEEPEST} brackets inside each other is too deep"));
        }
    }
    Ok(())
}

pub fn shortened(message: &str) -> String {
    message.chars().take(500).collect()
}

pub fn syntax_message(text: &str, errors: &jaq_core::load::Errors<&str, ()>) -> String {
    use jaq_core::load::Error;
    let at = |part: &str| {
        let start = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
        if start < text.len() { format!("at `{}`", shortened(&text[start..])) } else { "at its end".to_owned() }
    };
    let first = errors.first().map(|(_, error)| match error {
        Error::Io(_) => "it imports a module; programs stand alone".to_owned(),
        Error::Lex(errors) => errors
            .first()
            .map_or_else(String::new, |(expected, found)| format!("expected {} {}", expected.as_str(), at(found))),
        Error::Parse(errors) => errors
            .first()
            .map_or_else(String::new, |(expected, found)| format!("expected {} {}", expected.as_str(), at(found))),
    });
    format!("not a jq program: {}", first.unwrap_or_default())
}

pub fn undefined_message(errors: &jaq_core::compile::Errors<&str, ()>) -> String {
    let Some((name, kind)) = errors.first().and_then(|(_, errors)| errors.first()) else {
        return "not a jq program".to_owned();
    };
    if REFUSED.contains(name) {
        return format!(
            "`{name}` is refused: its result can differ between two runs on one record, or it reaches outside it"
        );
    }
    format!("`{name}` is not a known {}", kind.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::jq::Program;

    #[test]
    fn a_program_that_is_too_deep_or_too_long_is_refused_and_not_descended_into() {
        for (open, close) in [("[", "]"), ("(", ")"), ("{a:", "}")] {
            let nested = |times: usize| format!("{}.{}", open.repeat(times), close.repeat(times));
            assert!(Program::compile(&nested(DEEPEST)).is_ok(), "{open}");
            let message = Program::compile(&nested(DEEPEST + 1)).err().expect("too deep");
            assert!(message.contains("too deep"), "{message}");
        }
        let message = Program::compile(&"[".repeat(1_000_000)).err().expect("too long");
        assert!(message.contains("too long"), "{message}");
    }
}
