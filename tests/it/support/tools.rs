//! Programs that tests look with: fetched by dev/tools.sh, or the test says that it was skipped.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::process::free_port;
use super::{PATIENCE, eventually, skip};

/// Whether a tool is there; if not, the test counts as skipped.
pub fn has(tool: &str) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fetched = Command::new(root.join("dev/tools.sh")).arg(tool).stderr(Stdio::null()).status();
    let is_there = fetched.is_ok_and(|status| status.success());
    if !is_there {
        skip(&format!("no {tool}"));
    }
    is_there
}

pub fn path(tool: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools").join(tool)
}

/// Keys, as WebDriver names them; `type_into` takes them in its text too.
pub const TAB: &str = "\u{E004}";
pub const ENTER: &str = "\u{E007}";
pub const ESCAPE: &str = "\u{E00C}";

/// A headless Chromium, by way of its driver.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Nothing where there is no browser.
    pub async fn start(width: u32, height: u32, dark: bool) -> Option<Self> {
        if !has("browser") {
            return None;
        }
        let (port, profile) = (free_port(), tempfile::tempdir().expect("a folder"));
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts");
        let mut arguments: Vec<String> = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--force-device-scale-factor=1",
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.push(format!("--window-size={width},{height}"));
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        if dark {
            arguments.push("--force-dark-mode".to_owned());
        }
        let mut browser = Self { driver, port, session: String::new(), _profile: profile };
        let wanted = json!({"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": arguments}}}});
        let made =
            eventually("the browser starts", PATIENCE, async || browser.order("POST", "/session", &wanted).await.ok())
                .await;
        browser.session = made["sessionId"].as_str().unwrap_or_else(|| panic!("a session: {made}")).to_owned();
        Some(browser)
    }

    async fn order(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let failed = |error: std::io::Error| error.to_string();
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.map_err(failed)?;
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\ncontent-type: application/json\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        );
        stream.write_all(head.as_bytes()).await.map_err(failed)?;
        // The driver keeps the connection open, whatever it is asked.
        let mut read = Vec::new();
        let (head, body) = loop {
            if stream.read_buf(&mut read).await.map_err(failed)? == 0 {
                return Err("no answer".to_owned());
            }
            let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
            if read.len() >= end + 4 + length {
                break (head, read.split_off(end + 4));
            }
        };
        let body = String::from_utf8_lossy(&body).into_owned();
        let body: Value = serde_json::from_str(&body).map_err(|error| error.to_string())?;
        if head.split(' ').nth(1) == Some("200") {
            Ok(body["value"].clone())
        } else {
            Err(body["value"]["message"].to_string())
        }
    }

    async fn drive(&self, path: &str, body: Value) -> Result<Value, String> {
        self.order("POST", &format!("/session/{}{path}", self.session), &body).await
    }

    pub async fn go(&self, url: &str) {
        self.drive("/url", json!({"url": url})).await.expect("the page loads");
    }

    /// What a script in the page returns.
    pub async fn run(&self, script: &str) -> Value {
        self.drive("/execute/sync", json!({"script": script, "args": []}))
            .await
            .unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Waits until a script in the page returns true.
    pub async fn until(&self, script: &str) {
        let is_so = async || (self.run(script).await == json!(true)).then_some(());
        eventually(script, Duration::from_secs(20), is_so).await;
    }

    /// A key, wherever the focus is.
    pub async fn press(&self, key: &str) {
        let strokes = json!([{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]);
        let actions = json!({"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]});
        self.drive("/actions", actions).await.expect("a key is pressed");
    }

    /// Tab after Tab, until the focus is on the element of this id.
    pub async fn tab_to(&self, id: &str) {
        const FARTHEST: usize = 100;
        for _ in 0..FARTHEST {
            if self.run("return document.activeElement.id").await == json!(id) {
                return;
            }
            self.press(TAB).await;
        }
        panic!("no Tab leads to {id}");
    }

    /// What the page says, once it says this.
    pub async fn says(&self, text: &str) -> String {
        eventually(&format!("the page says `{text}`"), Duration::from_secs(20), async || {
            let page = self.run("return document.body.innerText").await;
            page.as_str().filter(|page| page.contains(text)).map(str::to_owned)
        })
        .await
    }

    /// A click, as a person's: on something that is there and can be seen. Pages that are drawn anew meanwhile are asked again.
    pub async fn click(&self, css: &str) {
        eventually(&format!("a click on {css}"), Duration::from_secs(20), async || {
            let found = self.drive("/element", json!({"using": "css selector", "value": css})).await.ok()?;
            let id = found.as_object()?.values().next()?.as_str()?.to_owned();
            self.drive(&format!("/element/{id}/click"), json!({})).await.ok()
        })
        .await;
    }

    pub async fn type_into(&self, css: &str, text: &str) {
        let found = self.drive("/element", json!({"using": "css selector", "value": css})).await.expect("a field");
        let id = found.as_object().and_then(|one| one.values().next()?.as_str()).expect("an id").to_owned();
        self.drive(&format!("/element/{id}/value"), json!({"text": text})).await.expect("text goes in");
    }

    /// A picture of what is to be seen, as PNG.
    pub async fn picture(&self, to: &Path) {
        let picture =
            self.order("GET", &format!("/session/{}/screenshot", self.session), &Value::Null).await.expect("a picture");
        let bytes =
            base64::Engine::decode(&base64::engine::general_purpose::STANDARD, picture.as_str().expect("base64"));
        std::fs::write(to, bytes.expect("base64")).expect("written");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver takes its browser with it when it is asked to end, not when it is killed.
        let end = format!("DELETE /session/{} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n", self.session);
        if let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", self.port)) {
            let _ = std::io::Write::write_all(&mut stream, end.as_bytes());
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = std::io::Read::read(&mut stream, &mut [0; 1024]);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
