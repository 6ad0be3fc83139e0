//! The dashboard in a real browser: it loads, shows what is wrong, pauses, replays; and random requests never bring the API down.

use std::path::Path;
use std::process::Command;

use oncebox::receiver::Answer;
use serde_json::json;

use crate::support::process::Config;
use crate::support::tools::{self, Browser};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

/// A workflow with dead letters and one event that waits for its next try.
async fn troubled(admin: &str, environment: &[(&str, &str)]) -> (Topic, TestDatabase, TestReceiver, Relay) {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| {
        let body: serde_json::Value = serde_json::from_slice(&seen.body).expect("JSON");
        match body["data"]["id"].as_u64() {
            _ if seen.event.contains(".r") => Answer::Process,
            Some(7) => Answer::status(503),
            Some(id) if id % 10 == 0 => Answer::status(422),
            _ => Answer::Process,
        }
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.admin = admin.to_owned();
    config.delivery = "retries: {backoff: [1h], jitter: 0}".to_owned();
    let relay = Relay::start_in(&config, "", environment);
    topic.send_orders(0..60);
    let letters = "select count(*) from oncebox.dead_letter";
    eventually("six are dead", PATIENCE, async || (database.count(letters).await == 6).then_some(())).await;
    let retried = "select count(*) from oncebox.retry where state = 'retryable'";
    eventually("one waits", PATIENCE, async || (database.count(retried).await == 1).then_some(())).await;
    eventually("the others are delivered", PATIENCE, async || (receiver.applied() == 53).then_some(())).await;
    (topic, database, receiver, relay)
}

/// Where pictures go: for whoever looks, and for docs/operate.md.
fn picture(name: &str) -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/pictures");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder.join(name)
}

#[tokio::test]
async fn an_operator_finds_what_is_late_pauses_and_replays_in_a_browser() {
    let Some(browser) = Browser::start(1280, 1000, false).await else { return };
    let (_topic, database, receiver, relay) = troubled("", &[]).await;
    browser.go(&format!("{}/", relay.url())).await;
    let page = browser.says("orders").await;
    assert!(page.contains("running"), "{page}");
    browser.says("live").await;
    browser.picture(&picture("workflows.png")).await;

    // Which one is late, and because of what.
    browser.click("a[href='#/workflows/orders']").await;
    let page = browser.says("Last errors").await;
    assert!(page.contains("503"), "{page}");
    browser.picture(&picture("workflow.png")).await;

    // Pause, behind a question; and go on.
    browser.click("#do-Pause").await;
    browser.says("Nothing is sent until it is resumed").await;
    browser.click("#ask-yes").await;
    browser.says("paused by api:local").await;
    assert_eq!(database.count("select count(*) from oncebox.workflow where state = 'paused'").await, 1);
    browser.click("#do-Resume").await;
    eventually("it runs", PATIENCE, async || {
        (database.count("select count(*) from oncebox.workflow where state = 'running'").await == 1).then_some(())
    })
    .await;

    // The event that waits: its attempts, and its body only when asked for.
    browser.click("a[href^='#/events/']").await;
    let page = browser.says("Request 1").await;
    assert!(!page.contains("amount"), "bodies are hidden until asked for: {page}");
    browser.click("#show-body").await;
    browser.says("amount").await;
    browser.picture(&picture("event.png")).await;

    // One dead letter goes, the others are replayed.
    browser.click("a[href='#/dead-letters']").await;
    browser.says("rejected").await;
    browser.picture(&picture("dead-letters.png")).await;
    browser.click("a[href^='#/dead-letters/']").await;
    browser.click("#discard").await;
    browser.says("never delivered").await;
    browser.click("#ask-yes").await;
    eventually("it is gone", PATIENCE, async || {
        (database.count("select count(*) from oncebox.dead_letter").await == 5).then_some(())
    })
    .await;
    browser.click("a[href='#/dead-letters']").await;
    browser.click("#replay-many").await;
    browser.says("Replay 5 dead letters?").await;
    browser.click("#ask-yes").await;
    browser.says("5 of 5").await;
    browser.picture(&picture("replays.png")).await;
    eventually("they are delivered", PATIENCE, async || (receiver.applied() == 58).then_some(())).await;
}

#[tokio::test]
async fn the_page_asks_for_a_token_fits_a_phone_and_is_dark_at_night() {
    let Some(browser) = Browser::start(500, 900, true).await else { return };
    let tokens = ", tokens: [{name: ann, token: \"${ANN}\", role: admin}]";
    let (_topic, _database, _receiver, relay) = troubled(tokens, &[("ANN", "a-token-of-anns-own")]).await;
    browser.go(&format!("{}/", relay.url())).await;
    let page = browser.says("This process asks for a token").await;
    assert!(!page.contains("orders"), "{page}");
    browser.type_into("#ask-body input", "a-token-of-anns-own").await;
    browser.click("#ask-yes").await;
    browser.says("orders").await;
    browser.says("live").await;
    let wide = browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
    assert_eq!(wide, json!(0), "nothing sticks out");
    let ground = browser.run("return getComputedStyle(document.body).backgroundColor").await;
    assert_eq!(ground, json!("rgb(20, 22, 26)"), "dark where the system is");
    browser.picture(&picture("phone.png")).await;
    // Nothing was loaded from elsewhere, and nothing was refused by the page's own policy.
    let loaded =
        browser.run("return performance.getEntriesByType('resource').map((one) => new URL(one.name).host)").await;
    let own = json!(relay.url().trim_start_matches("http://"));
    assert!(
        loaded.as_array().is_some_and(|hosts| hosts.len() >= 7 && hosts.iter().all(|host| *host == own)),
        "{loaded}"
    );
}

#[tokio::test]
async fn random_requests_by_its_own_description_find_no_fault() {
    if !tools::has("schemathesis") {
        return;
    }
    let (_topic, _database, _receiver, relay) = troubled("", &[]).await;
    let output = Command::new(tools::path("schemathesis/bin/schemathesis"))
        .args(["run", &format!("{}/openapi.json", relay.url())])
        .args([
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        ])
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", "25", "--seed", "1", "--workers", "1"])
        .args(["--request-timeout", "30"])
        .env("NO_COLOR", "1")
        .current_dir(tempfile::tempdir().expect("a folder").path())
        .output()
        .expect("schemathesis starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    // It asked for something, and the relay is well.
    assert!(said.contains("cases"), "{said}");
    relay.ready().await;
}
