//! How an endpoint learns who sends, as a user configures it: basic, bearer, headers, and secrets that change on disk.

use std::path::{Path, PathBuf};

use oncebox::receiver::{Answer, Seen};

use crate::support::process::{Config, oncebox};
use crate::support::servers::ProxyServer;
use crate::support::tls::{GOOD, Identity};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

/// Only what carries this header is processed.
async fn demanding(name: &'static str, value: &'static str) -> TestReceiver {
    TestReceiver::deciding(move |seen| match seen.header(name) {
        Some(given) if given == value => Answer::Process,
        _ => Answer::status(401),
    })
    .await
}

async fn applied(receiver: &TestReceiver, wanted: usize) {
    eventually("all is applied", PATIENCE, async || (receiver.applied() == wanted).then_some(())).await;
}

#[tokio::test]
async fn basic_and_bearer_credentials_are_sent_with_every_request_and_environment_proxies_ignored() {
    let decoy = ProxyServer::start("127.0.0.1:0", 200).await;
    let proxy = format!("http://{}", decoy.address);
    for (auth, wanted) in [
        ("{basic: {username: \"${USER_NAME}\", password: \"${PASSWORD}\"}}", "Basic YW5uYTpww6Rzczp3w7ZyZA=="),
        ("{bearer: {token: \"${TOKEN}\"}}", "Bearer t0ken.abc-_~+/="),
    ] {
        let receiver = demanding("authorization", wanted).await;
        let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
        let mut config = Config::new(&topic, &database, &receiver);
        config.endpoint = format!("auth: {auth}");
        let environment = [
            ("USER_NAME", "anna"),
            ("PASSWORD", "päss:wörd"),
            ("TOKEN", "t0ken.abc-_~+/="),
            ("HTTP_PROXY", proxy.as_str()),
            ("http_proxy", proxy.as_str()),
            ("ALL_PROXY", proxy.as_str()),
        ];
        topic.send_orders(0..30);
        let _relay = Relay::start_in(&config, "", &environment);
        applied(&receiver, 30).await;
        assert_eq!(receiver.seen().len(), 30, "{auth}: no request went without");
    }
    assert_eq!(decoy.heads().len(), 0);
}

/// A folder of secrets as Kubernetes mounts it: names that link through one link to the version in force.
struct Mounted {
    folder: tempfile::TempDir,
    version: u32,
}

impl Mounted {
    fn new(values: &[(&str, &str)]) -> Self {
        let mut mounted = Self { folder: tempfile::tempdir().expect("a folder"), version: 0 };
        mounted.replace(values);
        for (name, _) in values {
            std::os::unix::fs::symlink(Path::new("..data").join(name), mounted.path(name)).expect("a link");
        }
        mounted
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn reference(&self, name: &str) -> String {
        format!("${{file:{}}}", self.path(name).display())
    }

    /// Writes a new version, and swaps the link in one step.
    fn replace(&mut self, values: &[(&str, &str)]) {
        self.version += 1;
        let version = format!("..version-{}", self.version);
        std::fs::create_dir(self.path(&version)).expect("a folder");
        for (name, value) in values {
            std::fs::write(self.path(&version).join(name), format!("{value}\n")).expect("written");
        }
        std::os::unix::fs::symlink(&version, self.path("..data_tmp")).expect("a link");
        std::fs::rename(self.path("..data_tmp"), self.path("..data")).expect("swapped");
    }
}

#[tokio::test]
async fn secrets_that_change_on_disk_are_used_without_a_restart_and_ones_that_vanish_are_kept() {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let mut mounted = Mounted::new(&[("token", "one"), ("key", "first")]);
    let receiver = TestReceiver::deciding(|_: &Seen| Answer::Process).await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.endpoint = format!(
        "auth: {{bearer: {{token: \"{}\"}}}}\n      headers: {{X-Api-Key: \"k-{}\"}}",
        mounted.reference("token"),
        mounted.reference("key")
    );
    let relay = Relay::start(&config);
    relay.ready().await;
    let mut sent = 0;
    let mut send_until = async |wanted: (&str, &str)| {
        // One order after the other, until one arrives with these credentials.
        eventually(&format!("{wanted:?} are sent"), PATIENCE, async || {
            topic.send_orders(sent..sent + 1);
            sent += 1;
            applied(&receiver, sent as usize).await;
            let seen = receiver.seen();
            let last = seen.last().map(|seen| (seen.header("authorization"), seen.header("x-api-key")));
            (last == Some((Some(wanted.0), Some(wanted.1)))).then_some(())
        })
        .await;
    };
    send_until(("Bearer one", "k-first")).await;
    mounted.replace(&[("token", "two"), ("key", "second")]);
    send_until(("Bearer two", "k-second")).await;
    assert_eq!(relay.log().matches("secrets were read again").count(), 1, "{}", relay.log());
    // Gone, then empty, then no header value at all: the ones before stay, and the log says so once.
    mounted.replace(&[("key", "third")]);
    let warned = "those before stay in use";
    eventually("the log says that a file is gone", PATIENCE, async || {
        send_until(("Bearer two", "k-second")).await;
        relay.log().contains(warned).then_some(())
    })
    .await;
    mounted.replace(&[("token", ""), ("key", "third")]);
    send_until(("Bearer two", "k-second")).await;
    mounted.replace(&[("token", "three"), ("key", "a\u{7}b")]);
    send_until(("Bearer two", "k-second")).await;
    mounted.replace(&[("token", "four"), ("key", "fourth")]);
    send_until(("Bearer four", "k-fourth")).await;
    assert_eq!(relay.log().matches(warned).count(), 1, "{}", relay.log());
    let unexpected = |seen: &Seen| {
        !["Bearer one", "Bearer two", "Bearer four"].contains(&seen.header("authorization").unwrap_or(""))
    };
    assert!(!receiver.seen().iter().any(unexpected), "no request went with half a secret");
}

#[test]
fn what_is_wrong_with_credentials_is_said_with_its_position_and_without_the_value() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let authority = Identity::authority("an authority");
    let (cert, key) = authority.issue(&["a"], GOOD).write(folder.path(), "one");
    let (_, other) = authority.issue(&["b"], GOOD).write(folder.path(), "two");
    let (cert, key, other) = (cert.display(), key.display(), other.display());
    for (name, text) in [
        ("short", "whsec_aHVudGVyMg=="),
        ("nonsense", "hunter2 hunter2!"),
        ("token", "hunter2 with spaces"),
        ("empty", ""),
        ("not.pem", "hunter2"),
    ] {
        std::fs::write(at(name), text).unwrap();
    }
    let file = |name: &str| format!("\"${{file:{}}}\"", at(name));
    let cases: [(&str, String, &[&str]); 13] = [
        (
            "too short a signing secret",
            format!("signing: {{secrets: [{}]}}", file("short")),
            &["6:27", "7 bytes", "24 to 64"],
        ),
        ("no base64", format!("signing: {{secrets: [{}]}}", file("nonsense")), &["6:27", "not base64"]),
        ("a bearer token with spaces", format!("auth: {{bearer: {{token: {}}}}}", file("token")), &["6:30", "spaces"]),
        ("an empty bearer token", format!("auth: {{bearer: {{token: {}}}}}", file("empty")), &["6:30", "empty"]),
        (
            "two ways",
            format!("auth: {{bearer: {{token: {0}}}, basic: {{username: a, password: {0}}}}}", file("short")),
            &["6:13", "two ways"],
        ),
        (
            "a user name with a colon",
            format!("auth: {{basic: {{username: 'a:b', password: {}}}}}", file("short")),
            &["6:32", "colon"],
        ),
        (
            "a token URL that is none",
            format!("auth: {{oauth2: {{tokenUrl: x, clientId: a, clientSecret: {}}}}}", file("short")),
            &["6:33", "token endpoint"],
        ),
        ("a CA that is not there", format!("tls: {{ca: \"{}\"}}", at("gone")), &["6:17", "gone", "cannot read"]),
        ("a CA that is none", format!("tls: {{ca: \"{}\"}}", at("not.pem")), &["6:17", "no CA certificate"]),
        (
            "a certificate that is none",
            format!("tls: {{cert: \"{}\", key: \"{key}\"}}", at("not.pem")),
            &["6:19", "no certificate"],
        ),
        ("a certificate without its key", format!("tls: {{cert: \"{cert}\"}}"), &["6:19", "`cert` without `key`"]),
        ("a key that is none", format!("tls: {{cert: \"{cert}\", key: \"{}\"}}", at("not.pem")), &["no private key"]),
        ("another's key", format!("tls: {{cert: \"{cert}\", key: \"{other}\"}}"), &["not that of the certificate"]),
    ];
    let path = folder.path().join("c.yaml");
    for (name, endpoint, wanted) in cases {
        let yaml = format!(
            "postgres: {{url: \"postgresql://u@localhost/db\"}}\nworkflows:\n  - id: orders\n    source: {{topics: [t]}}\n    endpoint:\n      {endpoint}\n      url: https://e.com/\n"
        );
        std::fs::write(&path, yaml).unwrap();
        let output = oncebox(&["validate"], &path);
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(2), "{name}: {text}");
        assert!(wanted.iter().all(|part| text.contains(part)), "{name}: no {wanted:?} in {text}");
        assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg"), "{name}: {text}");
    }
    let yaml = "egress: {proxy: 'socks5://a'}\npostgres: {url: \"postgresql://u@localhost/db\"}\n";
    std::fs::write(&path, yaml).unwrap();
    let output = oncebox(&["validate"], &path);
    assert!(String::from_utf8_lossy(&output.stderr).contains("c.yaml:1:17: not an HTTP proxy"));
}
