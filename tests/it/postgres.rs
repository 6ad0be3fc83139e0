//! Postgres as platforms run it: behind a pooler in transaction mode, full, with certificates that are checked.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oncebox::receiver::Answer;

use crate::direct::{order, rows};
use crate::start::run_on;
use crate::support::cluster::{Cluster, Server, listening, run, unprivileged};
use crate::support::process::{Config, command, free_port};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually, services, skip};

/// A pgbouncer in transaction mode, ended with its owner.
struct Pooler {
    /// Leads through it.
    url: url::Url,
    _server: Server,
    _folder: tempfile::TempDir,
}

impl Pooler {
    /// None where it is not installed.
    async fn start() -> Option<Self> {
        if Command::new("pgbouncer").arg("--version").output().is_err() {
            skip("pgbouncer is not installed");
            return None;
        }
        let mut url: url::Url = services().database_url.parse().expect("a URL");
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let (user, password) = (url.username(), url.password().unwrap_or_default());
        let ini = format!(
            "[databases]\n* = host={host} port={server} user={user} password={password}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 8\nunix_socket_dir =\n",
            host = url.host_str().unwrap_or("127.0.0.1"),
            server = url.port().unwrap_or(5432),
        );
        let path = folder.path().join("pgbouncer.ini");
        std::fs::write(&path, ini).expect("written");
        let _ = Command::new("chmod").arg("755").arg(folder.path()).status();
        let log = std::fs::File::create(folder.path().join("log")).expect("a log");
        let server = unprivileged("pgbouncer", folder.path()).arg(&path).stdout(Stdio::null()).stderr(log).spawn();
        let server = Server(server.expect("pgbouncer starts"));
        eventually("pgbouncer listens", PATIENCE, async || listening(port).then_some(())).await;
        url.set_port(Some(port)).expect("a URL");
        url.set_query(Some("sslmode=disable"));
        Some(Self { url, _server: server, _folder: folder })
    }
}

#[tokio::test]
async fn everything_works_behind_pgbouncer_in_transaction_mode() {
    let Some(pooler) = Pooler::start().await else { return };
    let (topic, database, receiver) = (Topic::new(3).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.postgres = "directUrl: \"${DIRECT_URL}\"".to_owned();
    let urls = [("DATABASE_URL", pooler.url.as_str()), ("DIRECT_URL", services().database_url.as_str())];
    let relay = Relay::start_in(&config, "", &urls);
    topic.send_orders(0..500);
    eventually("all is applied", PATIENCE, async || (receiver.applied() == 500).then_some(())).await;
    eventually("all is settled", PATIENCE, async || {
        (database.count("select count(*) from oncebox.done").await == 500).then_some(())
    })
    .await;
    assert_eq!(receiver.lines().len(), 500);
    drop(relay);
}

/// Nothing is heard through a pooler, neither of retries nor of an operator's replay: all of it is found by looking.
#[tokio::test]
async fn without_a_way_past_pgbouncer_everything_works_by_looking() {
    let Some(pooler) = Pooler::start().await else { return };
    let (topic, database) = (Topic::new(3).await, TestDatabase::new().await);
    let mended = Arc::new(AtomicBool::new(false));
    let is_mended = Arc::clone(&mended);
    let receiver = TestReceiver::deciding(move |seen| match (order(seen), seen.attempt) {
        (7 | 57, _) if !is_mended.load(Ordering::Acquire) => Answer::status(422),
        (number, 1) if number % 10 == 5 => Answer::status(503),
        _ => Answer::Process,
    })
    .await;
    // Brings the schema forward through the pooler, too.
    let config = Config::new(&topic, &database, &receiver);
    let relay = Relay::start_in(&config, "", &[("DATABASE_URL", pooler.url.as_str())]);
    topic.send_orders(0..100);
    eventually("all but two are applied", PATIENCE, async || (receiver.applied() == 98).then_some(())).await;
    eventually("all is settled", PATIENCE, async || {
        let done = database.count("select count(*) from oncebox.done").await;
        (done == 100 && database.count("select count(*) from oncebox.retry").await == 0).then_some(())
    })
    .await;
    assert_eq!(receiver.seen().len(), 110, "ten were sent twice");
    let verb = |arguments: &[&str]| {
        let mut command = command();
        command.args(arguments).arg("--config").arg(relay.config_path()).env("DATABASE_URL", pooler.url.as_str());
        let output = command.output().expect("oncebox starts");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert!(verb(&["migrate"]).contains("is up to date"));
    let listed: serde_json::Value = serde_json::from_str(&verb(&["dead-letters", "list", "--json"])).expect("JSON");
    let letters = listed.as_array().expect("a list");
    assert!(letters.len() == 2 && letters.iter().all(|letter| letter["reason"] == "rejected"), "{listed}");
    mended.store(true, Ordering::Release);
    verb(&["dead-letters", "replay", letters[0]["id"].as_str().expect("an id")]);
    eventually("the replay is applied", PATIENCE, async || (receiver.applied() == 99).then_some(())).await;
    eventually("one dead letter is left", PATIENCE, async || {
        (database.count("select count(*) from oncebox.dead_letter").await == 1).then_some(())
    })
    .await;
}

/// As when the disk has no room for it.
#[tokio::test]
async fn a_dead_letter_that_cannot_be_written_is_neither_lost_nor_passed_over() {
    for guarantee in ["exactly-once", "idempotent-keys"] {
        let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
        let receiver = TestReceiver::deciding(|seen| match order(seen) {
            1 => Answer::status(422),
            _ => Answer::Process,
        })
        .await;
        let mut config = Config::new(&topic, &database, &receiver);
        // Longer than the test refuses the write: nothing is taken for lost meanwhile.
        (config.guarantee, config.timeout, config.lease) = (guarantee, "10s", "60s");
        let relay = Relay::start(&config);
        database.execute("alter table oncebox.dead_letter add constraint no_room check (reason <> 'rejected')").await;
        topic.send_orders(0..3);
        let refused = async || relay.log().contains("parking an event failed").then_some(());
        eventually("the write is refused and said to be", PATIENCE, refused).await;
        eventually("the others are applied", PATIENCE, async || (receiver.applied() == 2).then_some(())).await;
        for table in ["dead_letter", "done where state = 'discarded'"] {
            assert_eq!(rows(&database, table).await, 0, "{table}");
        }
        database.execute("alter table oncebox.dead_letter drop constraint no_room").await;
        eventually("it is written", PATIENCE, async || (rows(&database, "dead_letter").await == 1).then_some(())).await;
        assert_eq!(receiver.seen().len(), 3, "each was sent once");
        assert_eq!(rows(&database, "done where state = 'discarded'").await, 1);
        assert_eq!(rows(&database, "retry").await, 0);
    }
}

#[tokio::test]
async fn a_server_that_may_lose_what_it_committed_is_refused() {
    let Some(mut cluster) = Cluster::new() else {
        skip("no PostgreSQL server binaries on this machine");
        return;
    };
    cluster.serve(&[]).await;
    let url = cluster.url();
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut operator = cluster.client().await;
    let config = Config::new(&topic, &database, &receiver);
    let relay = Relay::start_in(&config, "", &[("DATABASE_URL", &url)]);
    relay.ready().await;
    drop(relay);
    let settings: [(&[&str], &str); 3] = [
        (&["fsync"], "Postgres runs with fsync off"),
        (&["full_page_writes"], "Postgres runs with full_page_writes off"),
        (&["fsync", "full_page_writes"], "Postgres runs with fsync and full_page_writes off"),
    ];
    for (off, wanted) in settings {
        operator.batch_execute("alter system reset all").await.expect("it is the test's own");
        for name in off {
            operator.batch_execute(&format!("alter system set {name} = off")).await.expect("it is the test's own");
        }
        operator.batch_execute("select pg_reload_conf()").await.expect("it is the test's own");
        // New connections know it once the server does.
        operator = eventually("the server runs so", PATIENCE, async || {
            let fresh = cluster.client().await;
            let asked = "select name from pg_settings where name in ('fsync', 'full_page_writes') and setting = 'off' order by 1";
            let rows = fresh.query(asked, &[]).await.ok()?;
            rows.iter().map(|row| row.get::<_, &str>(0)).eq(off.iter().copied()).then_some(fresh)
        })
        .await;
        let (code, text) = run_on(&config.yaml(0), &url).await;
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(wanted), "{text}");
    }
}

#[tokio::test]
async fn tls_is_verified_as_far_as_it_is_asked_for() {
    let Some(mut cluster) = Cluster::new() else {
        skip("no PostgreSQL server binaries on this machine");
        return;
    };
    let data = cluster.data();
    let (cert, key) = (data.join("server.crt"), data.join("server.key"));
    // Its name is db.internal: right for verify-ca, wrong for verify-full by address.
    run(unprivileged("openssl", cluster.folder.path())
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=db.internal"])
        .args(["-addext", "subjectAltName=DNS:db.internal,DNS:localhost", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&cert));
    let _ = Command::new("chmod").arg("600").arg(&key).status();
    let ca = cluster.folder.path().join("ca.crt");
    std::fs::copy(&cert, &ca).expect("copied");
    cluster.serve(&["-c", "ssl=on"]).await;
    let (folder, port) = (&cluster.folder, cluster.port);

    let migrate = |host: &str, tls: &str| {
        let yaml = format!(
            "postgres: {{url: \"postgresql://u@{host}:{port}/postgres\", tls: {tls}}}\nworkflows:\n  - {{id: a, source: {{topics: [t]}}, \
             endpoint: {{url: \"https://example.com\"}}}}\n"
        );
        let path = folder.path().join("c.yaml");
        std::fs::write(&path, yaml).expect("written");
        let output = command().args(["migrate", "--config"]).arg(&path).output().expect("oncebox starts");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let ca = ca.display();
    eventually("Postgres answers", PATIENCE, async || migrate("127.0.0.1", "{mode: require}").0.then_some(())).await;
    for (host, tls, wanted) in [
        ("127.0.0.1", "{mode: disable}".to_owned(), true),
        ("127.0.0.1", "{mode: prefer}".to_owned(), true),
        ("127.0.0.1", format!("{{mode: verify-ca, ca: \"{ca}\"}}"), true),
        ("127.0.0.1", format!("{{mode: verify-full, ca: \"{ca}\"}}"), false),
        ("localhost", format!("{{mode: verify-full, ca: \"{ca}\"}}"), true),
        ("127.0.0.1", "{mode: verify-ca}".to_owned(), false),
    ] {
        let (worked, text) = migrate(host, &tls);
        assert_eq!(worked, wanted, "{host} {tls}: {text}");
    }
}
