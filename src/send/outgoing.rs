//! A request on its way: its head as it will stand on the wire, and its body.
//!
//! What must hold: no text can end its line, whatever it holds. The body's length is written when the request leaves.

use bytes::Bytes;

/// Bodies up to this size leave together with their head, in one write.
const ONE_WRITE: usize = 16 << 10;

#[derive(Debug, Clone)]
pub struct Outgoing {
    /// The request line and headers, each with its line's end.
    head: Vec<u8>,
    body: Bytes,
}

impl Outgoing {
    /// `head` as `first_line` and `write_header` make it.
    pub fn new(head: Vec<u8>, body: Bytes) -> Self {
        Self { head, body }
    }

    pub fn body(&self) -> &Bytes {
        &self.body
    }

    pub fn method(&self) -> &str {
        let end = self.head.iter().position(|byte| *byte == b' ').unwrap_or(0);
        std::str::from_utf8(&self.head[..end]).unwrap_or_default()
    }

    /// Names and values in their order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.lines().skip(1).map(|line| {
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(0);
            (std::str::from_utf8(&line[..colon]).unwrap_or_default(), line.get(colon + 2..).unwrap_or_default())
        })
    }

    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Sets a header, in the place of one of that name if there is one.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        if self.header(name).is_some() {
            let kept: Vec<&[u8]> = self
                .lines()
                .filter(|line| !line.starts_with(name.as_bytes()) || line.get(name.len()) != Some(&b':'))
                .collect();
            self.head = kept.into_iter().flat_map(|line| [line, b"\r\n"]).flatten().copied().collect();
        }
        write_header(&mut self.head, name, value);
    }

    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        // No value holds a line's end.
        self.head.split(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\r"))
    }

    /// What is written first, and what after it.
    pub fn pieces(&self) -> (Vec<u8>, Bytes) {
        let whole = self.body.len() <= ONE_WRITE;
        let mut first = Vec::with_capacity(self.head.len() + 32 + if whole { self.body.len() } else { 0 });
        first.extend_from_slice(&self.head);
        // A question has no body, and says nothing about one.
        if self.method() != "GET" {
            first.extend_from_slice(b"content-length: ");
            write_number(&mut first, self.body.len() as u64);
            first.extend_from_slice(b"\r\n");
        }
        first.extend_from_slice(b"\r\n");
        if !whole {
            return (first, self.body.clone());
        }
        first.extend_from_slice(&self.body);
        (first, Bytes::new())
    }
}

pub fn first_line(method: &str, path: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\n").into_bytes()
}

/// What comes from data is cleaned, never dropped and never able to end its line. Names are checked at load.
pub fn write_header(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    write_value(head, value);
    head.extend_from_slice(b"\r\n");
}

pub fn write_value(head: &mut Vec<u8>, value: &[u8]) {
    let fits = |byte: &u8| (*byte >= b' ' && *byte != 127) || *byte == b'\t';
    if value.iter().all(fits) {
        head.extend_from_slice(value);
        return;
    }
    let text = String::from_utf8_lossy(value);
    head.extend(text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c as u8 } else { b'?' }));
}

pub fn write_number(head: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    head.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing(body: &'static [u8]) -> Outgoing {
        let mut head = first_line("POST", "/events?a=b");
        write_header(&mut head, "host", b"h:81");
        write_header(&mut head, "x-secret", b"one");
        write_header(&mut head, "x-secret-too", b"a: b");
        Outgoing::new(head, Bytes::from_static(body))
    }

    #[test]
    fn a_request_stands_on_the_wire_as_it_was_made() {
        let (first, rest) = outgoing(b"{}").pieces();
        let wanted = "POST /events?a=b HTTP/1.1\r\nhost: h:81\r\nx-secret: one\r\nx-secret-too: a: b\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(String::from_utf8(first).unwrap(), wanted);
        assert!(rest.is_empty());
    }

    #[test]
    fn a_header_that_is_set_again_stands_there_once() {
        let mut request = outgoing(b"");
        request.set("x-secret", b"two");
        let headers: Vec<_> = request.headers().collect();
        assert_eq!(headers, [("host", &b"h:81"[..]), ("x-secret-too", b"a: b"), ("x-secret", b"two")]);
        assert_eq!(request.method(), "POST");
    }

    #[test]
    fn no_value_ends_its_line() {
        let mut head = Vec::new();
        write_header(&mut head, "x", b"a\r\nb: c\0\x7f\xff");
        assert_eq!(head, b"x: a??b: c???\r\n");
    }

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, 7, 10, 1_234_567, u64::MAX] {
            let mut out = Vec::new();
            write_number(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
    }
}
