//! `oncebox status`: a watch goes on, whatever happens to what it looks at.

use std::process::Stdio;

use crate::support::gate::Gate;
use crate::support::process::{Config, command};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

#[tokio::test]
async fn a_watch_outlives_a_lost_connection_and_says_so_meanwhile() {
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let relay = Relay::start(&Config::new(&topic, &database, &receiver));
    relay.ready().await;
    let gate = Gate::to(([127, 0, 0, 1], relay.port).into()).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("screen");
    let mut watch = command();
    watch.args(["status", "--watch", "--url", &format!("http://{}", gate.address)]).stderr(Stdio::null());
    watch.stdout(std::fs::File::create(&path).expect("a file"));
    let mut watching = tokio::process::Command::from(watch).kill_on_drop(true).spawn().expect("oncebox starts");
    // What was printed since the connection was lost for the last time.
    let since = || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        text.rsplit("trying again").next().map(str::to_owned).unwrap_or_default()
    };
    eventually("it is shown", PATIENCE, async || since().contains("orders").then_some(())).await;
    gate.shut();
    eventually("the trouble is shown", PATIENCE, async || (!since().contains("orders")).then_some(())).await;
    gate.open();
    eventually("it is shown again", PATIENCE, async || since().contains("orders").then_some(())).await;
    assert!(watching.try_wait().expect("it can be asked").is_none(), "it watches on");
}
