//! The dashboard in a real browser: it loads, shows what is wrong, pauses, replays; and random requests never bring the API down.

use std::path::Path;
use std::process::Command;

use oncebox::receiver::Answer;
use serde_json::json;

use crate::support::process::Config;
use crate::support::tools::{self, Browser};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

/// A workflow with dead letters, one event that waits for its next try, and one in doubt that is held.
pub async fn troubled(admin: &str, environment: &[(&str, &str)]) -> (Topic, TestDatabase, TestReceiver, Relay) {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let receiver = TestReceiver::deciding(|seen| {
        let body: serde_json::Value = serde_json::from_slice(&seen.body).expect("JSON");
        match body["data"]["id"].as_u64() {
            _ if seen.event.contains(".r") => Answer::Process,
            Some(7) => Answer::status(503),
            Some(8) => Answer::status(500),
            Some(id) if id % 10 == 0 => Answer::status(422),
            _ => Answer::Process,
        }
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.admin = admin.to_owned();
    config.delivery = "retries: {backoff: [1h], jitter: 0}\n      onInDoubt: hold\n      concurrency: 5\n      \
                       rateLimit: {perSecond: 1000, burst: 2000}"
        .to_owned();
    // Long enough that a slow machine puts nothing in doubt by itself.
    (config.timeout, config.lease) = ("20s", "40s");
    let relay = Relay::start_in(&config, "", environment);
    topic.send_orders(0..60);
    let letters = "select count(*) from oncebox.dead_letter";
    eventually("six are dead", PATIENCE, async || (database.count(letters).await == 6).then_some(())).await;
    let retried = "select count(*) from oncebox.retry where state = 'retryable'";
    eventually("one waits", PATIENCE, async || (database.count(retried).await == 1).then_some(())).await;
    let held = "select count(*) from oncebox.retry where held = 'in_doubt'";
    eventually("one is held", PATIENCE, async || (database.count(held).await == 1).then_some(())).await;
    eventually("the others are delivered", PATIENCE, async || (receiver.applied() == 52).then_some(())).await;
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
    let limits = [
        "1,000, and 2,000 at once",
        "more than 1,000 in 10 m suspend it",
        " of 1,000,000: above that reading pauses",
        "of 4 GiB",
    ];
    for text in limits.into_iter().chain(["1 event is in doubt, and waits for your word"]) {
        assert!(page.contains(text), "`{text}`: {page}");
    }
    // Of waiting, held and dead events alike, newest first.
    let errors = browser.run("return document.querySelector('#errors').innerText").await.to_string();
    for text in ["503", "retryable", "500", "pending", "422", "discarded"] {
        assert!(errors.contains(text), "`{text}`: {errors}");
    }
    let times = "return [...document.querySelectorAll('#errors time')].map((one) => Date.parse(one.dateTime))";
    let times: Vec<f64> = serde_json::from_value(browser.run(times).await).expect("times");
    assert!(times.len() == 8 && times.is_sorted_by(|later, earlier| later >= earlier), "{times:?}");
    let waiting = browser.run("return document.querySelector('#waiting').innerText").await.to_string();
    assert!(waiting.contains("in_doubt") && waiting.contains("retryable"), "{waiting}");
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

    // The event that waits: its attempts, its request, and its body only when asked for.
    browser.click("#all-retryable").await;
    browser.click("#events a[href^='#/events/']").await;
    let page = browser.says("Request 1").await;
    assert!(!page.contains("amount"), "bodies are hidden until asked for: {page}");
    for text in ["503", "POST", &receiver.url(), "idempotency-key", "oncebox-source", "application/json"] {
        assert!(page.contains(text), "`{text}`: {page}");
    }
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
    eventually("they are delivered", PATIENCE, async || (receiver.applied() == 57).then_some(())).await;
}

#[tokio::test]
async fn a_workflow_that_its_configuration_pauses_says_so_and_offers_no_resume() {
    let Some(browser) = Browser::start(1000, 800, false).await else { return };
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.extra = "paused: true".to_owned();
    let relay = Relay::start(&config);
    relay.ready().await;
    browser.go(&format!("{}/#/workflows/orders", relay.url())).await;
    browser.says("Its configuration pauses it, and nobody else").await;
    assert_eq!(browser.run("return document.getElementById('do-Resume')").await, json!(null));
    // An operator's own pause can be ended all the same.
    relay.call("POST", "/v1/workflows/orders/pause", None, Some(json!({}))).await;
    browser.says("Its configuration pauses it too").await;
    browser.click("#do-Resume").await;
    browser.says("Its configuration pauses it, and nobody else").await;
}

/// More than one page looks at wait before the two that somebody looks for.
#[tokio::test]
async fn events_of_a_state_are_found_however_many_others_wait() {
    const MANY: u32 = 2_500;
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    topic.send_orders(0..MANY);
    let mut config = Config::new(&topic, &database, &receiver);
    config.delivery = "delay: 1h".to_owned();
    let relay = Relay::start(&config);
    let scheduled = "select count(*) from oncebox.retry where state = 'scheduled'";
    let all = async || (database.count(scheduled).await == i64::from(MANY)).then_some(());
    eventually("all wait for their time", PATIENCE, all).await;
    let last = |before: u32| format!("record_offset = (select max(record_offset) - {before} from oncebox.outbox)");
    database.execute(&format!("update oncebox.retry set state = 'retryable', sends = 1 where {}", last(1))).await;
    let held = "state = 'pending', held = 'in_doubt', in_doubt = true, sends = 1";
    database.execute(&format!("update oncebox.retry set {held} where {}", last(0))).await;
    for (state, held) in [("retryable", json!(null)), ("pending", json!("in_doubt"))] {
        let page = relay.ask(&format!("/v1/events?workflow=orders&state={state}&limit=10")).await;
        let items = page["items"].as_array().expect("items");
        assert_eq!((items.len(), &page["next"]), (1, &json!(null)), "{state}: {page}");
        assert_eq!((&items[0]["state"], &items[0]["held"]), (&json!(state), &held), "{page}");
    }
    let workflow = relay.ask("/v1/workflows/orders").await;
    assert_eq!((&workflow["held"], &workflow["events"]["retryable"]), (&json!(1), &json!(1)), "{workflow}");
    assert_eq!(workflow["limits"]["maxWaiting"], json!(1_000_000));
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
