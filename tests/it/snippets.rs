//! The documents' commands do what is written beside them: each block of a shell is run as it stands, but for addresses, paths and an
//! ellipsis, by somebody who follows the pages in order. Those that cannot be are named here, with what runs them instead.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use oncebox::receiver::Answer;

use crate::support::process::{Config, free_port, migrated};
use crate::support::{PATIENCE, TestDatabase, TestReceiver, Topic, eventually, services, skip};

/// What is not run here, and why that is good enough.
const ELSEWHERE: [(&str, &str, &str); 9] = [
    ("README.md", "make demo", "this is `make test`; the demo takes minutes and builds in release mode"),
    (
        "docs/operate.md",
        "DEMO_FLAGS=--keep make demo",
        "it leaves everything running; what it shows is in dashboard.rs and replays.rs",
    ),
    (
        "docs/receivers.md",
        "cargo run --example receiver",
        "receivers.rs runs all three, set up by dev/receivers.sh in the same steps",
    ),
    (
        "helm/oncebox/README.md",
        "kubectl create secret",
        "needs a cluster; dev/helm.sh renders the chart and checks every object",
    ),
    (
        "helm/oncebox/README.md",
        "kubectl port-forward",
        "needs a cluster; what is run inside the pod is run here against the same files",
    ),
    ("clients/go/README.md", "go mod edit", "for a project of one's own; dev/clients.sh builds the kit with go"),
    (
        "clients/java/README.md",
        "mvn -f",
        "installs into the user's own repository; dev/clients.sh builds the kit with mvn",
    ),
    (
        "clients/python/README.md",
        "pip install",
        "dev/clients.sh does it, with a copy of the kit and its extra `sample`",
    ),
    (
        "clients/typescript/README.md",
        "(cd ../oncebox",
        "dev/clients.sh does the first, and npm the second for a project",
    ),
];

/// Blocks of a shell that nobody has run yet, with the page that has them.
struct Blocks(Vec<(String, String)>);

impl Blocks {
    fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut pages = ["README.md", "helm/oncebox/README.md", "examples/team/README.md"].map(str::to_owned).to_vec();
        for entry in std::fs::read_dir(root.join("clients")).expect("the kits") {
            let kit = entry.expect("a kit").path();
            if kit.join("README.md").exists() {
                pages.push(format!("clients/{}/README.md", kit.file_name().expect("a name").display()));
            }
        }
        for entry in std::fs::read_dir(root.join("docs")).expect("the pages") {
            let name = entry.expect("a page").file_name().into_string().expect("a name");
            if name.ends_with(".md") {
                pages.push(format!("docs/{name}"));
            }
        }
        let mut blocks = Vec::new();
        for page in pages {
            let text = std::fs::read_to_string(root.join(&page)).expect("a page");
            for block in text.split("\n```").skip(1).step_by(2) {
                if let Some((_, commands)) =
                    block.split_once('\n').filter(|(language, _)| ["sh", "bash"].contains(language))
                {
                    blocks.push((page.clone(), commands.to_owned()));
                }
            }
        }
        Self(blocks)
    }

    /// The one of a page that begins so.
    fn take(&mut self, page: &str, beginning: &str) -> String {
        let found = self.0.iter().position(|(of, text)| of == page && text.trim_start().starts_with(beginning));
        let at = found.unwrap_or_else(|| panic!("{page} has no block that begins with `{beginning}`"));
        self.0.remove(at).1
    }
}

/// Where somebody sits who follows the pages.
struct Desk {
    folder: PathBuf,
    port: u16,
}

impl Desk {
    fn shell(&self, commands: &str) -> Command {
        let binary = Path::new(env!("CARGO_BIN_EXE_oncebox")).parent().expect("its folder").display();
        let (services, folder) = (services(), self.folder.display().to_string());
        let commands = commands
            .replace("127.0.0.1:9464", &format!("127.0.0.1:{}", self.port))
            .replace("/etc/oncebox", &folder)
            .replace("postgresql://…", &format!("'{}'", services.database_url))
            .replace("KAFKA_BROKERS=…", &format!("KAFKA_BROKERS='{}'", services.brokers));
        assert!(!commands.contains('…'), "what stands for the dots? {commands}");
        let mut shell = Command::new("bash");
        shell
            .args(["-euo", "pipefail", "-c", &commands])
            .current_dir(&self.folder)
            .env("PATH", format!("{binary}:{}", std::env::var("PATH").expect("a PATH")))
            .env("DATABASE_URL", &services.database_url)
            .env("KAFKA_BROKERS", &services.brokers);
        shell
    }

    /// Runs a block to its end, and answers what it printed.
    fn run(&self, commands: &str) -> String {
        let output = self.shell(commands).output().expect("bash starts");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{commands}\n{printed}{errors}");
        printed
    }
}

/// A block that goes on for ever, and all that it started.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-9", "--", &format!("-{}", self.0.id())]).status();
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn whoever_follows_the_pages_gets_what_they_say() {
    let mut blocks = Blocks::read();
    // The third order is refused until it is replayed.
    let receiver = TestReceiver::deciding(|seen| {
        let is_refused = !seen.event.contains(".r") && seen.body.windows(8).any(|bytes| bytes == b"\"id\":2,\"");
        if is_refused { Answer::status(422) } else { Answer::Process }
    })
    .await;
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let folder = tempfile::tempdir().expect("a folder");
    let desk = Desk { folder: folder.path().to_owned(), port: free_port() };
    let mut config = Config::new(&topic, &database, &receiver);
    config.workflow = "orders-to-erp".to_owned();
    std::fs::write(desk.folder.join("oncebox.yaml"), config.yaml(desk.port)).expect("the configuration is written");

    // README: check, explain, migrate, run.
    let mut shell = desk.shell(&blocks.take("README.md", "export DATABASE_URL="));
    let mut relay =
        Started(shell.process_group(0).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("bash starts"));
    let out = relay.0.stdout.take().expect("its output");
    let printed = std::thread::spawn(move || {
        let mut lines = Vec::new();
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            lines.push(line);
        }
        lines.join("\n")
    });
    topic.send_orders(0..10);
    eventually("nine orders arrive", PATIENCE, async || (receiver.applied() == 9).then_some(())).await;
    let letters = async || (database.count("select count(*) from oncebox.dead_letter").await == 1).then_some(());
    eventually("one is dead", PATIENCE, letters).await;

    // docs/operate.md, at night.
    let printed_by = desk.run(&blocks.take("docs/operate.md", "oncebox status"));
    assert!(printed_by.contains("orders-to-erp"), "{printed_by}");
    eventually("it was replayed", PATIENCE, async || (receiver.applied() == 10).then_some(())).await;
    let verified = desk.run(&blocks.take("docs/operate.md", "oncebox verify"));
    assert!(verified.contains("exactly one disposition"), "{verified}");

    // An event over HTTP.
    let post = blocks.take("docs/operate.md", "curl -X POST");
    if Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_ok() {
        let answer = desk.run(&post);
        assert!(answer.contains("order-7"), "{answer}");
        eventually("it arrives", PATIENCE, async || receiver.seen().into_iter().find(|seen| seen.key == "order-7"))
            .await;
    } else {
        skip("there is no curl");
    }

    // Upgrades, and what the chart's hook asks.
    let upgraded = desk.run(&blocks.take("docs/upgrade.md", "oncebox validate"));
    assert!(upgraded.contains("exactly one disposition"), "{upgraded}");
    desk.run(&blocks.take("docs/platforms.md", "oncebox validate --config /etc/oncebox --online"));

    drop(relay);
    let printed = printed.join().expect("it was read");
    assert!(printed.contains("exactly-once"), "explain says what is promised: {printed}");

    team(&mut blocks).await;
    for (page, beginning, _) in ELSEWHERE {
        blocks.take(page, beginning);
    }
    assert!(blocks.0.is_empty(), "nobody runs these: {:#?}", blocks.0);
}

/// A team's repository and its CI.
async fn team(blocks: &mut Blocks) {
    let (folder, database) = (tempfile::tempdir().expect("a folder"), TestDatabase::new().await);
    migrated(&database);
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/team");
    let copied = Command::new("cp").arg("-r").arg(from.join(".")).arg(folder.path()).status();
    assert!(copied.expect("cp runs").success());
    let platform = folder.path().join("config/00-platform.yaml");
    let text = std::fs::read_to_string(&platform).expect("the platform's part");
    let with_schema =
        text.replace("url: ${DATABASE_URL}", &format!("url: ${{DATABASE_URL}}\n  schema: {}", database.schema));
    std::fs::write(&platform, with_schema).expect("it is written");
    let desk = Desk { folder: folder.path().to_owned(), port: free_port() };
    let secrets = "export ADMIN_TOKEN=not-the-token-of-an-admin VIEWER_TOKEN=not-the-token-of-a-viewer \
                   ERP_TOKEN=not-the-token-of-the-erp LEDGER_SIGNING_SECRET=whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n";
    let printed =
        desk.run(&format!("{secrets}{}", blocks.take("docs/platforms.md", "oncebox validate --config config")));
    assert!(printed.contains("\"disposition\":"), "{printed}");
    let printed = desk.run(&blocks.take("examples/team/README.md", "./ci.sh"));
    assert!(printed.contains("== preview"), "{printed}");
}
