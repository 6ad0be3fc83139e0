//! Postgres as platforms run it: behind a pooler in transaction mode, and with certificates that are checked.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::start::run_on;
use crate::support::process::{Config, command};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually, services, skip};

/// A server of a test's own, ended with it.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port()
}

fn listening(port: u16) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Servers refuse to run as root; files must then belong to whoever runs them.
fn unprivileged(program: &str, folder: &std::path::Path) -> Command {
    let root = Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n");
    if !root {
        return Command::new(program);
    }
    let _ = Command::new("chown").arg("-R").arg("nobody").arg(folder).status();
    // It becomes the program, where `runuser` would start it beside itself and leave it behind when it is killed.
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--", program]);
    command
}

#[tokio::test]
async fn everything_works_behind_pgbouncer_in_transaction_mode() {
    if Command::new("pgbouncer").arg("--version").output().is_err() {
        skip("pgbouncer is not installed");
        return;
    }
    let url: url::Url = services().database_url.parse().expect("a URL");
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
    let pooler = unprivileged("pgbouncer", folder.path()).arg(&path).stdout(Stdio::null()).stderr(log).spawn();
    let _pooler = Server(pooler.expect("pgbouncer starts"));
    eventually("pgbouncer listens", PATIENCE, async || listening(port).then_some(())).await;

    let (topic, database, receiver) = (Topic::new(3).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut pooled = url.clone();
    pooled.set_port(Some(port)).expect("a URL");
    pooled.set_query(Some("sslmode=disable"));
    let mut config = Config::new(&topic, &database, &receiver);
    config.postgres = "directUrl: \"${DIRECT_URL}\"".to_owned();
    let relay = Relay::start_in(&config, "", &[("DATABASE_URL", pooled.as_str()), ("DIRECT_URL", url.as_str())]);
    topic.send_orders(0..500);
    eventually("all is applied", PATIENCE, async || (receiver.applied() == 500).then_some(())).await;
    eventually("all is settled", PATIENCE, async || {
        (database.count("select count(*) from oncebox.done").await == 500).then_some(())
    })
    .await;
    assert_eq!(receiver.lines().len(), 500);
    drop(relay);
}

fn run(command: &mut Command) {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A database cluster of a test's own: its folder, and its data below that.
fn cluster(bin: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let _ = Command::new("chmod").arg("755").arg(folder.path()).status();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a folder");
    run(unprivileged(&format!("{bin}/initdb"), folder.path()).args(["-U", "u", "--auth=trust", "-D"]).arg(&data));
    (folder, data)
}

async fn serve(bin: &str, folder: &tempfile::TempDir, settings: &[&str]) -> (Server, u16) {
    let port = free_port();
    let server = unprivileged(&format!("{bin}/postgres"), folder.path())
        .arg("-D")
        .arg(folder.path().join("data"))
        .args(["-p", &port.to_string(), "-c", "unix_socket_directories=", "-c", "listen_addresses=127.0.0.1"])
        .args(settings)
        .stderr(Stdio::null())
        .spawn();
    let server = Server(server.expect("Postgres starts"));
    eventually("Postgres listens", PATIENCE, async || listening(port).then_some(())).await;
    (server, port)
}

#[tokio::test]
async fn a_server_that_may_lose_what_it_committed_is_refused() {
    let Some(bin) = postgres_bin() else {
        skip("no PostgreSQL server binaries on this machine");
        return;
    };
    let (folder, _data) = cluster(&bin);
    let (_server, port) = serve(&bin, &folder, &[]).await;
    let url = format!("postgresql://u@127.0.0.1:{port}/postgres");
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut operator = eventually("Postgres answers", PATIENCE, async || client(&url).await).await;
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
            let fresh = client(&url).await?;
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

async fn client(url: &str) -> Option<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.ok()?;
    tokio::spawn(connection);
    Some(client)
}

#[tokio::test]
async fn tls_is_verified_as_far_as_it_is_asked_for() {
    let Some(bin) = postgres_bin() else {
        skip("no PostgreSQL server binaries on this machine");
        return;
    };
    let (folder, data) = cluster(&bin);
    let (cert, key) = (data.join("server.crt"), data.join("server.key"));
    // Its name is db.internal: right for verify-ca, wrong for verify-full by address.
    run(unprivileged("openssl", folder.path())
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=db.internal"])
        .args(["-addext", "subjectAltName=DNS:db.internal,DNS:localhost", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&cert));
    let _ = Command::new("chmod").arg("600").arg(&key).status();
    let ca = folder.path().join("ca.crt");
    std::fs::copy(&cert, &ca).expect("copied");
    let (_server, port) = serve(&bin, &folder, &["-c", "ssl=on"]).await;

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

fn postgres_bin() -> Option<String> {
    let folders = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let bins = folders.flatten().map(|entry| entry.path().join("bin"));
    bins.filter(|bin| bin.join("initdb").exists()).max().map(|bin| bin.display().to_string())
}
