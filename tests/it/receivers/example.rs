//! The receivers of docs/receivers and the samples of the kits in clients/ as processes, and requests to them made by hand.

use std::io::BufRead;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use super::books::Books;
use crate::support::skip;
use crate::support::wire::{self, Answer};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Rust,
    Python,
    TypeScript,
    RustKit,
    PythonKit,
    TypeScriptKit,
    GoKit,
    JavaKit,
}

impl Language {
    /// How to start it; nothing when what it needs cannot be had here, and then the test counts as skipped.
    pub fn program(self) -> Option<&'static [PathBuf]> {
        static PROGRAMS: [OnceLock<Result<Vec<PathBuf>, String>>; 8] = [const { OnceLock::new() }; 8];
        match PROGRAMS[self as usize].get_or_init(|| self.prepare()) {
            Ok(program) => Some(program),
            Err(why) => {
                skip(why);
                None
            }
        }
    }

    fn prepare(self) -> Result<Vec<PathBuf>, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        match self {
            Self::Rust => Ok(vec![built_example()]),
            Self::Python => {
                fetch("python")?;
                Ok(vec![root.join("target/receivers/python/bin/python"), root.join("docs/receivers/python/main.py")])
            }
            Self::TypeScript => {
                fetch("typescript")?;
                Ok(vec!["node".into(), root.join("target/receivers/typescript/dist/main.js")])
            }
            Self::RustKit => sample("rust"),
            Self::PythonKit => sample("python"),
            Self::TypeScriptKit => sample("typescript"),
            Self::GoKit => sample("go"),
            Self::JavaKit => sample("java"),
        }
    }
}

/// A kit's sample receiver: the script builds it and says how to start it, a word per line.
fn sample(language: &str) -> Result<Vec<PathBuf>, String> {
    let said = run("dev/clients.sh", &[language, "sample-command"])?;
    Ok(said.lines().map(PathBuf::from).collect())
}

/// `cargo test` builds examples, unless it is told to build one test only: then it is built here.
fn built_example() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let example = test.ancestors().nth(2).expect("target/debug").join("examples/receiver");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/receivers/rust/main.rs");
    let changed = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    if changed(&example) < changed(Path::new(source)) {
        let features = if cfg!(feature = "mutants") { "failpoints,mutants" } else { "failpoints" };
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--example", "receiver", "--features", features])
            .args((!cfg!(debug_assertions)).then_some("--release"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(built.expect("cargo runs").success(), "the example builds");
    }
    example
}

fn fetch(language: &str) -> Result<(), String> {
    run("dev/receivers.sh", &[language]).map(drop)
}

/// What a script prints; or why what it needs cannot be had here.
fn run(script: &str, arguments: &[&str]) -> Result<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let output = Command::new(path).args(arguments).output().expect("the script runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Some(3) => {
            let why = said.lines().last().unwrap_or_default();
            Err(why.split_once(": ").map_or(why, |(_, why)| why).to_owned())
        }
        _ => panic!("{script} {arguments:?}: {said}"),
    }
}

pub struct Example {
    child: Child,
    pub address: SocketAddr,
    log: tempfile::NamedTempFile,
}

impl Example {
    pub fn start(program: &[PathBuf], books: &Books, secrets: &str) -> Self {
        let log = tempfile::NamedTempFile::new().expect("a log");
        let mut child = Command::new(&program[0])
            .args(&program[1..])
            .env("DATABASE_URL", books.url())
            .env("LISTEN", "127.0.0.1:0")
            .env("WEBHOOK_SECRET", secrets)
            .stdout(Stdio::piped())
            .stderr(log.reopen().expect("the log is there"))
            .spawn()
            .expect("the receiver starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("it is a pipe");
        std::io::BufReader::new(output).read_line(&mut line).expect("it says where it listens");
        let address = line.trim().strip_prefix("listening on ").and_then(|address| address.parse().ok());
        let said = || std::fs::read_to_string(log.path()).unwrap_or_default();
        let address = address.unwrap_or_else(|| panic!("{program:?} did not start: {line}{}", said()));
        Self { child, address, log }
    }

    /// What it has logged.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap_or_default()
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    pub async fn post(&self, key: &str, body: &str) -> Answer {
        wire::ask(self.address, &request(&[("webhook-id", key)], body)).await
    }

    /// What the status endpoint says of a key.
    pub async fn get(&self, key: &str) -> u16 {
        let request = format!("GET /events/{key} HTTP/1.1\r\nhost: receiver\r\n\r\n");
        wire::ask(self.address, request.as_bytes()).await.status
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the receiver said ---\n{}", self.said());
        }
    }
}

pub fn request(headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    format!("POST /events HTTP/1.1\r\nhost: receiver\r\n{headers}content-length: {length}\r\n\r\n{body}").into_bytes()
}

/// An event's body.
pub fn credit(account: &str, amount: i64) -> String {
    format!(r#"{{"eventType":"Credited","data":{{"account":"{account}","amount":{amount}}}}}"#)
}
