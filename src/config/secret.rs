//! Text that must not be printed: passwords, tokens, keys, URLs that hold them.
//!
//! Leaves only through `expose`, so that every use can be found by searching for it. A secret knows the files that it was
//! read from, so that it can be read again when they change.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use super::substitute::{Part, Sources, parts, resolve};

#[derive(Clone)]
pub struct Secret {
    text: String,
    /// What it is put together from; empty when no file is among it.
    pieces: Vec<Piece>,
}

#[derive(Clone)]
enum Piece {
    Text(String),
    /// `${file:/path}`: mounted secrets end in a newline more often than not, which is no part of them.
    Line(PathBuf),
    /// All of a file: a certificate, a key.
    Whole(PathBuf),
}

/// Why a secret cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("cannot read `{}`", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{}` is empty", .0.display())]
    Empty(PathBuf),
    #[error("{0}")]
    Reference(String),
}

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), pieces: Vec::new() }
    }

    /// `text` is what `written`, with its `${..}`, stands for.
    pub fn from_written(text: impl Into<String>, written: &str) -> Self {
        let piece = |part| match part {
            Part::Text(text) => Piece::Text(text.to_owned()),
            Part::File(path) => Piece::Line(path.into()),
            // What is missing was reported when the configuration was read.
            Part::Variable(reference) => Piece::Text(resolve(reference, &Sources::system()).unwrap_or_default()),
            Part::Unclosed => Piece::Text(String::new()),
        };
        let pieces: Vec<Piece> = parts(written).into_iter().map(piece).collect();
        let from_files = pieces.iter().any(|piece| piece.file().is_some());
        Self { text: text.into(), pieces: if from_files { pieces } else { Vec::new() } }
    }

    /// A text with references, such as one of the command line.
    pub fn from_references(written: &str) -> Result<Self, SecretError> {
        let mut text = String::new();
        for part in parts(written) {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::File(path) => text.push_str(&Piece::Line(path.into()).read()?),
                Part::Variable(reference) => {
                    text.push_str(&resolve(reference, &Sources::system()).map_err(SecretError::Reference)?);
                }
                Part::Unclosed => {
                    return Err(SecretError::Reference("a reference without its closing brace".to_owned()));
                }
            }
        }
        Ok(Self::from_written(text, written))
    }

    /// All of a file.
    pub fn file(path: impl Into<PathBuf>) -> Result<Self, SecretError> {
        let piece = Piece::Whole(path.into());
        Ok(Self { text: piece.read()?, pieces: vec![piece] })
    }

    pub fn expose(&self) -> &str {
        &self.text
    }

    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.pieces.iter().filter_map(Piece::file)
    }

    /// The same secret as its files have it now. A file that is gone or empty is an error: it is being replaced.
    pub fn read_again(&self) -> Result<Self, SecretError> {
        if self.pieces.is_empty() {
            return Ok(self.clone());
        }
        let text = self.pieces.iter().map(Piece::read).collect::<Result<String, SecretError>>()?;
        Ok(Self { text, pieces: self.pieces.clone() })
    }
}

impl Piece {
    fn file(&self) -> Option<&Path> {
        match self {
            Self::Text(_) => None,
            Self::Line(path) | Self::Whole(path) => Some(path),
        }
    }

    fn read(&self) -> Result<String, SecretError> {
        let read = |path: &PathBuf| match fs::read_to_string(path) {
            Ok(text) if text.trim().is_empty() => Err(SecretError::Empty(path.clone())),
            Ok(text) => Ok(text),
            Err(source) => Err(SecretError::Unreadable { path: path.clone(), source }),
        };
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Line(path) => read(path).map(|text| text.trim_end_matches(['\n', '\r']).to_owned()),
            Self::Whole(path) => read(path),
        }
    }
}

/// Two secrets are the same when their text is, wherever it comes from.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_again_from_its_files_and_prints_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "one\n").unwrap();
        let secret = Secret::from_references(&format!("Bearer ${{file:{}}}", path.display())).unwrap();
        assert_eq!((secret.expose(), format!("{secret} {secret:?}").as_str()), ("Bearer one", "*** ***"));
        assert_eq!(secret.files().collect::<Vec<_>>(), [path.as_path()]);
        fs::write(&path, "two\n").unwrap();
        assert_eq!(secret.read_again().unwrap().expose(), "Bearer two");
    }

    #[test]
    fn a_file_that_is_gone_or_empty_is_no_new_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        fs::write(&path, "a key\n").unwrap();
        let secret = Secret::file(&path).unwrap();
        assert_eq!(secret.expose(), "a key\n");
        fs::write(&path, "\n").unwrap();
        assert!(matches!(secret.read_again(), Err(SecretError::Empty(_))));
        fs::remove_file(&path).unwrap();
        assert!(matches!(secret.read_again(), Err(SecretError::Unreadable { .. })));
    }

    #[test]
    fn a_secret_without_files_stays_as_it_is() {
        let secret = Secret::from_written("value", "${ONCEBOX_NO_SUCH_VARIABLE:-value}");
        assert_eq!((secret.files().count(), secret.read_again().unwrap().expose()), (0, "value"));
    }
}
