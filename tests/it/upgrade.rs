//! From the release before to this one, with both running side by side: its schema, its process, its configuration.
//!
//! `ONCEBOX_PREVIOUS` is a binary of the release before; `make upgrade` builds one and asks for this test.

use std::path::Path;

use crate::support::process::{Config, oncebox};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually, skip};

async fn upgrade(guarantee: &'static str) {
    let Some(previous) = std::env::var_os("ONCEBOX_PREVIOUS") else {
        skip("upgrade: no binary of the release before; `make upgrade` builds one");
        return;
    };
    let (topic, database, receiver) = (Topic::new(4).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.guarantee = guarantee;
    let mut old = Relay::start_of(Path::new(&previous), &config);
    topic.send_orders(0..300);
    topic.flush();
    eventually("the one before delivers", PATIENCE, async || (receiver.applied() > 50).then_some(())).await;
    // The schema first, as the chart has it; the process of before goes on with it.
    let migrated = oncebox(&["migrate"], &old.config_path());
    assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    topic.send_orders(300..600);
    topic.flush();
    eventually("it still delivers", PATIENCE, async || (receiver.applied() > 400).then_some(())).await;
    let mut new = Relay::start_migrated(&config);
    new.ready().await;
    let mut sent = 600;
    let of_old = async || old.metric("oncebox_delivered_total", "orders").await.unwrap_or(0.0);
    let before = of_old().await;
    eventually("both deliver", PATIENCE, async || {
        topic.send_orders(sent..sent + 50);
        topic.flush();
        sent += 50;
        let of_new = new.metric("oncebox_delivered_total", "orders").await?;
        (of_new > 20.0 && of_old().await > before + 20.0).then_some(())
    })
    .await;
    assert!(!old.has_ended(), "{}", old.log());
    assert_eq!(old.stop().await, Some(0));
    topic.send_orders(sent..sent + 300);
    topic.flush();
    sent += 300;
    let all = usize::try_from(sent).expect("few");
    eventually("all are delivered", PATIENCE, async || (receiver.applied() == all).then_some(())).await;
    let verified = oncebox(&["verify", "orders"], &new.config_path());
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    assert_eq!(new.stop().await, Some(0));
    assert_eq!(receiver.seen().len(), all, "no request was made twice");
}

#[tokio::test]
async fn an_upgrade_under_load_loses_and_repeats_nothing_through_the_outbox() {
    upgrade("exactly-once").await;
}

#[tokio::test]
async fn an_upgrade_under_load_loses_and_repeats_nothing_without_it() {
    upgrade("idempotent-keys").await;
}
