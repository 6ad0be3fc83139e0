//! Enters: bytes that an endpoint sent. Leaves: the status, what it asks for, and where the body ends. Pure.
//!
//! What must hold: only what is surely one whole answer counts as one. An answer whose length is told in two ways is none.

use std::io;

/// Answers whose headers are longer than this are not HTTP that we read.
pub const HEADER_BYTES: usize = 64 << 10;
const MOST_HEADERS: usize = 100;
/// A chunk's size and what may stand behind it, and a trailer's line.
const LINE_BYTES: usize = 4 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    pub retry_after: Option<Vec<u8>>,
    pub body: Framing,
    /// Whether the connection takes another request once the body was read.
    pub keeps: bool,
}

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Length(u64),
    Chunked(Chunk),
    UntilClose,
}

/// Where in a chunked body the reader stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunk {
    Size,
    Data(u64),
    /// The line's end behind the data.
    End,
    Trailer,
    Over,
}

/// Reads the head of a final answer from the front of `bytes`: it and its length. Nothing while it is not whole.
pub fn head(bytes: &[u8]) -> io::Result<Option<(Head, usize)>> {
    let mut skipped = 0;
    loop {
        let Some((head, length)) = one_head(&bytes[skipped..])? else {
            return if bytes.len() > HEADER_BYTES { Err(broken("a head of more than 64 KiB")) } else { Ok(None) };
        };
        skipped += length;
        // Those before the final one: nothing is asked of us.
        if (100..200).contains(&head.status) && head.status != 101 {
            continue;
        }
        return Ok(Some((head, skipped)));
    }
}

fn one_head(bytes: &[u8]) -> io::Result<Option<(Head, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    };
    let status = parsed.code.expect("a whole head has a status");
    let mut keeps = parsed.version == Some(1) && status != 101;
    let (mut retry_after, mut told, mut coding) = (None, None, None);
    for header in parsed.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let length = content_length(header.value, told)?;
            told = Some(length);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            coding = header.value.rsplit(|byte| *byte == b',').next().map(<[u8]>::trim_ascii);
        } else if header.name.eq_ignore_ascii_case("connection") {
            keeps &=
                !header.value.split(|byte| *byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(b"close"));
        } else if header.name.eq_ignore_ascii_case("retry-after") {
            retry_after = Some(header.value.to_vec());
        }
    }
    let body = match (coding, told) {
        _ if status < 200 || matches!(status, 204 | 304) => Framing::Length(0),
        (Some(coding), _) if coding.eq_ignore_ascii_case(b"chunked") => Framing::Chunked(Chunk::Size),
        (Some(_), _) | (None, None) => Framing::UntilClose,
        (None, Some(length)) => Framing::Length(length),
    };
    // Told in two ways: somebody between us and the endpoint may have read it in the other.
    keeps &= body != Framing::UntilClose && !(coding.is_some() && told.is_some());
    Ok(Some((Head { status, retry_after, body, keeps }, length)))
}

/// The length that is told, if it is the same wherever it is told.
fn content_length(value: &[u8], before: Option<u64>) -> io::Result<u64> {
    let mut known = before;
    for one in value.split(|byte| *byte == b',') {
        let text = one.trim_ascii();
        let number = Some(text).filter(|text| !text.is_empty() && text.iter().all(u8::is_ascii_digit));
        let number = number.and_then(|text| std::str::from_utf8(text).ok()?.parse::<u64>().ok());
        match (number, known) {
            (Some(number), None) => known = Some(number),
            (Some(number), Some(before)) if number == before => {}
            _ => return Err(broken("a content-length that is none, or another than before")),
        }
    }
    known.ok_or_else(|| broken("no content-length"))
}

impl Framing {
    /// Takes what it can of `bytes`: how much of them, and which part of that is the body's.
    pub fn take(&mut self, bytes: &[u8]) -> io::Result<(usize, std::ops::Range<usize>)> {
        match self {
            Self::UntilClose => Ok((bytes.len(), 0..bytes.len())),
            Self::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= taken as u64;
                Ok((taken, 0..taken))
            }
            Self::Chunked(chunk) => chunk.take(bytes),
        }
    }

    pub fn is_over(&self) -> bool {
        match self {
            Self::UntilClose => false,
            Self::Length(left) => *left == 0,
            Self::Chunked(chunk) => *chunk == Chunk::Over,
        }
    }
}

impl Chunk {
    fn take(&mut self, bytes: &[u8]) -> io::Result<(usize, std::ops::Range<usize>)> {
        if let Self::Data(left) = self {
            let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
            *left -= taken as u64;
            if *left == 0 {
                *self = Self::End;
            }
            return Ok((taken, 0..taken));
        }
        if *self == Self::Over {
            return Ok((0, 0..0));
        }
        let Some(at) = bytes.iter().position(|byte| *byte == b'\n') else {
            return if bytes.len() > LINE_BYTES { Err(broken("a chunk's line without end")) } else { Ok((0, 0..0)) };
        };
        let line = bytes[..at].strip_suffix(b"\r").ok_or_else(|| broken("a chunk's line that ends too early"))?;
        *self = match self {
            Self::Size => match chunk_size(line)? {
                0 => Self::Trailer,
                size => Self::Data(size),
            },
            Self::End if line.is_empty() => Self::Size,
            Self::Trailer if line.is_empty() => Self::Over,
            Self::Trailer => Self::Trailer,
            Self::End | Self::Data(_) | Self::Over => return Err(broken("more than a chunk's size says")),
        };
        Ok((at + 1, 0..0))
    }
}

fn chunk_size(line: &[u8]) -> io::Result<u64> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    text.and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or_else(|| broken("a chunk without its size"))
}

fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests;
