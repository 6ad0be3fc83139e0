//! A Kafka broker of a test's own that lets a user do only what was granted: SCRAM over TLS for the user, a plain listener for whoever
//! administers it. It ends with the test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rdkafka::admin::AdminClient;
use rdkafka::client::DefaultClientContext;

use super::cluster::{Server, listening, run};
use super::process::free_port;
use super::tls::{GOOD, Identity};
use super::{PATIENCE, Topic, embedded, eventually, kafka, skip};

/// As dev/services.sh fetches them.
const JARS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/dev/kafka/lib");
const CLUSTER_ID: &str = "MkU3OEVBNTcwNTJENDM2Qk";

pub struct Broker {
    /// Where everything may be done, without credentials.
    pub plain: String,
    /// Where users come.
    pub secured: String,
    /// The certificate of the authority that signed the broker's.
    pub ca: PathBuf,
    pub admin: AdminClient<DefaultClientContext>,
    _server: Server,
    folder: tempfile::TempDir,
}

impl Broker {
    /// With one user, who may do nothing yet. Nothing where there is no broker to be had: the test counts as skipped.
    pub async fn start(user: &str, password: &str) -> Option<Self> {
        if embedded::lacks("users and their rights") {
            return None;
        }
        let has_java = Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !has_java.is_ok_and(|status| status.success()) || !Path::new(JARS).join(".complete").exists() {
            skip("needs a broker of its own, and there is no JVM or no Kafka: `dev/services.sh fetch`");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Identity::authority("the broker's authority");
        let (ca, _) = authority.write(folder.path(), "ca");
        let (cert, key) = authority.issue(&["127.0.0.1"], GOOD).write(folder.path(), "broker");
        let pem = [key, cert].map(|path| std::fs::read_to_string(path).expect("PEM")).concat();
        std::fs::write(folder.path().join("broker.pem"), pem).expect("written");
        let [plain, secured, controller] = std::array::from_fn(|_| free_port());
        let settings = folder.path().join("server.properties");
        std::fs::write(&settings, properties(folder.path(), plain, secured, controller)).expect("written");

        let user = format!("SCRAM-SHA-512=[name={user},password={password}]");
        run(java("kafka.tools.StorageTool")
            .args(["format", "--cluster-id", CLUSTER_ID, "--add-scram", &user, "--config"])
            .arg(&settings));
        let log = File::create(folder.path().join("log")).expect("a log");
        let server = java("kafka.Kafka")
            .arg(&settings)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn();
        let server = Server(server.expect("Kafka starts"));
        eventually("Kafka listens", PATIENCE, async || (listening(plain) && listening(secured)).then_some(())).await;
        let [plain, secured] = [plain, secured].map(|port| format!("127.0.0.1:{port}"));
        let admin = kafka::client().set("bootstrap.servers", &plain).create().expect("an admin client");
        Some(Self { plain, secured, ca, admin, _server: server, folder })
    }

    pub async fn topic(&self, name: &str) -> Topic {
        eventually("the broker makes a topic", PATIENCE, async || Topic::at(&self.plain, name, 1).await).await
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            eprintln!("--- what the broker said ---\n{log}");
        }
    }
}

/// Small, and quick to start rather than quick.
fn java(class: &str) -> Command {
    let mut command = Command::new("java");
    command.args(["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]);
    command.arg(format!("{JARS}/*")).arg(class);
    command
}

/// Whoever comes without credentials may do everything, and comes by the plain listeners alone: the test, the broker and its controller.
fn properties(folder: &Path, plain: u16, secured: u16, controller: u16) -> String {
    let folder = folder.display();
    format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{secured},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{secured}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={folder}/broker.pem
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
"
    )
}
