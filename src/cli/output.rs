//! What verbs print: tables with aligned columns, paragraphs with filled lines.

/// Rows under a header, columns two spaces apart.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|text| text.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(header.to_vec())];
    lines.extend(rows.iter().map(|row| line(row.iter().map(String::as_str).collect())));
    lines.join("\n")
}

/// The name that the audit shows for this person.
pub fn who() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "unknown".to_owned());
    format!("cli:{user}")
}

/// Says how far something is, over what was said before; only to a person at a terminal.
pub fn progress(text: &str) {
    use std::io::{IsTerminal as _, Write as _};
    let mut errors = std::io::stderr();
    if errors.is_terminal() {
        let _ = write!(errors, "\r\x1b[K{text}\r");
        let _ = errors.flush();
    }
}

/// Text of others, without what would steer a terminal.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// Lines are filled to here.
const WIDTH: usize = 100;
/// No column but the widest of a table gets more than this.
const COLUMN: usize = 30;

/// A paragraph, indented, its lines filled.
pub fn wrapped(text: &str, indent: usize) -> String {
    let lines = filled(text, WIDTH - indent);
    lines.iter().map(|line| format!("{:indent$}{line}", "")).collect::<Vec<_>>().join("\n")
}

/// One point of a list.
pub fn bullet(text: &str) -> String {
    let lines = filled(text, WIDTH - 4);
    format!("  - {}", lines.join("\n    "))
}

/// Rows whose cells may be paragraphs: the longest column takes the room that the others leave.
pub fn wrapped_rows<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let length = |text: &str| text.chars().count();
    let longest = |column: usize| {
        let cells = rows.iter().map(|row| length(&row[column]));
        cells.chain([length(header[column])]).max().unwrap_or_default()
    };
    let mut widths: [usize; N] = std::array::from_fn(longest);
    let widest = (0..N).max_by_key(|column| widths[*column]).unwrap_or_default();
    for (column, width) in widths.iter_mut().enumerate() {
        *width = if column == widest { 0 } else { (*width).min(COLUMN) };
    }
    let taken: usize = widths.iter().sum::<usize>() + 2 * N;
    widths[widest] = WIDTH.saturating_sub(taken).max(COLUMN).min(longest(widest));
    let mut out = Vec::new();
    for row in std::iter::once(&header.map(str::to_owned)).chain(rows) {
        let cells: Vec<Vec<String>> = row.iter().zip(widths).map(|(cell, width)| filled(cell, width)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or_default();
        for line in 0..height {
            let parts: Vec<String> = cells
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{:<width$}", cell.get(line).map_or("", String::as_str)))
                .collect();
            out.push(format!("  {}", parts.join("  ")).trim_end().to_owned());
        }
    }
    out.join("\n")
}

/// Words in lines of at most `width`; a longer word has a line of its own.
fn filled(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_never_lost_and_lines_never_too_long() {
        let text = "the quick brown fox jumps over the lazy dog and a-word-that-is-longer-than-the-line";
        let lines = filled(text, 20);
        assert_eq!(lines.join(" "), text);
        assert!(lines.iter().all(|line| line.len() <= 20 || !line.contains(' ')), "{lines:?}");
        let rows = [["a".to_owned(), text.to_owned()], ["b".to_owned(), String::new()]];
        let table = wrapped_rows(["X", "Y"], &rows);
        assert!(table.lines().all(|line| line.chars().count() <= WIDTH), "{table}");
        assert_eq!(table.split_whitespace().count(), 2 + 2 + text.split_whitespace().count());
    }
}
