//! A PostgreSQL server of a test's own, on a private port, ended with the test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::process::free_port;
use super::{PATIENCE, eventually};

/// A server process, ended with its owner.
pub struct Server(pub Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn listening(port: u16) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Servers refuse to run as root; files must then belong to whoever runs them.
pub fn unprivileged(program: &str, folder: &Path) -> Command {
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

pub fn run(command: &mut Command) {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A database cluster and, once it serves, its server.
pub struct Cluster {
    pub folder: tempfile::TempDir,
    pub port: u16,
    bin: PathBuf,
    server: Option<Server>,
}

impl Cluster {
    /// None where this machine has no server binaries.
    pub fn new() -> Option<Self> {
        let folders = std::fs::read_dir("/usr/lib/postgresql").ok()?;
        let bins = folders.flatten().map(|entry| entry.path().join("bin"));
        let bin = bins.filter(|bin| bin.join("initdb").exists()).max()?;
        let folder = tempfile::tempdir().expect("a folder");
        let _ = Command::new("chmod").arg("755").arg(folder.path()).status();
        let cluster = Self { folder, port: free_port(), bin, server: None };
        std::fs::create_dir(cluster.data()).expect("a folder");
        run(cluster.program("initdb").args(["-U", "u", "--auth=trust", "-D"]).arg(cluster.data()));
        Some(cluster)
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub fn url(&self) -> String {
        format!("postgresql://u@127.0.0.1:{}/postgres", self.port)
    }

    fn program(&self, name: &str) -> Command {
        unprivileged(&self.bin.join(name).display().to_string(), self.folder.path())
    }

    pub async fn serve(&mut self, settings: &[&str]) {
        let server = self
            .program("postgres")
            .arg("-D")
            .arg(self.data())
            .args(["-p", &self.port.to_string(), "-c", "unix_socket_directories=", "-c", "listen_addresses=127.0.0.1"])
            .args(settings)
            .stderr(Stdio::null())
            .spawn();
        self.server = Some(Server(server.expect("Postgres starts")));
        let port = self.port;
        eventually("Postgres listens", PATIENCE, async || listening(port).then_some(())).await;
    }

    pub async fn client(&self) -> tokio_postgres::Client {
        let url = self.url();
        eventually("Postgres answers", PATIENCE, async || {
            let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.ok()?;
            tokio::spawn(connection);
            Some(client)
        })
        .await
    }

    /// The server dies, and one takes over that has every commit: as with a synchronous standby, on a timeline of its own.
    pub async fn fail_over(&mut self) {
        run(self.program("pg_ctl").args(["stop", "-m", "immediate", "-D"]).arg(self.data()));
        self.server = None;
        std::fs::write(self.data().join("recovery.signal"), "").expect("written");
        self.serve(&["-c", "restore_command=false"]).await;
        let client = self.client().await;
        eventually("it has taken over", PATIENCE, async || {
            let row = client.query_one("select not pg_is_in_recovery()", &[]).await.ok()?;
            row.get::<_, bool>(0).then_some(())
        })
        .await;
    }
}
