//! The dashboard without a mouse, and under somebody's hands: Enter says yes, rows can be opened while the page is kept up to date, and
//! what is being chosen or selected is not taken away.

use serde_json::json;

use crate::dashboard::troubled;
use crate::support::process::Config;
use crate::support::tools::{Browser, ENTER, ESCAPE, TAB};
use crate::support::{Relay, TestDatabase, TestReceiver, Topic};

/// The page has been drawn anew: `window.before`, which was there, is not any more.
const DRAWN_ANEW: &str = "return !window.before.isConnected";
const KEPT: &str = "return document.getElementById('pulse').textContent.startsWith('kept')";
const CLOSED: &str = "return !document.getElementById('ask').open";

#[tokio::test]
async fn enter_gives_the_token_and_whoever_gives_none_finds_the_way_on() {
    let Some(browser) = Browser::start(1000, 800, false).await else { return };
    let (topic, database, receiver) = (Topic::new(1).await, TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.admin = ", tokens: [{name: ann, token: \"${ANN}\", role: admin}]".to_owned();
    let relay = Relay::start_in(&config, "", &[("ANN", "a-token-of-anns-own")]);
    relay.ready().await;
    browser.go(&format!("{}/", relay.url())).await;
    browser.says("One of admin.tokens").await;
    browser.press(ESCAPE).await;
    browser.until(CLOSED).await;
    // It is not asked for again by itself, and the page goes on looking.
    let asked = "performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/v1/workflows')).length";
    let before = browser.run(&format!("return {asked}")).await;
    browser.until(&format!("return {asked} > {before} + 1")).await;
    assert_eq!(browser.run(CLOSED).await, json!(true));

    browser.click("#give-token").await;
    browser.says("One of admin.tokens").await;
    browser.click("#ask-no").await;
    browser.until(CLOSED).await;
    assert_eq!(browser.run("return sessionStorage.length").await, json!(0), "no is no");

    browser.click("#give-token").await;
    browser.type_into("#ask-body input", &format!("a-token-of-anns-own{ENTER}")).await;
    browser.says("orders").await;
    browser.until(CLOSED).await;
    browser.until("return document.getElementById('pulse').textContent === 'live'").await;
}

#[tokio::test]
async fn rows_and_buttons_are_reached_by_keyboard_while_the_page_is_kept_up_to_date() {
    let Some(browser) = Browser::start(1000, 800, false).await else { return };
    let (_topic, database, _receiver, relay) = troubled("", &[]).await;
    browser.go(&format!("{}/", relay.url())).await;
    browser.says("orders").await;
    for (page, row, opened) in [
        ("#/dead-letters", "a[href^='#/dead-letters/']", "What is sent"),
        ("#/workflows/orders", "#errors a", "The request"),
        ("#/events?workflow=orders&state=retryable", "#events a", "The request"),
    ] {
        browser.run(&format!("location.hash = \"{page}\"")).await;
        browser.until(&format!("return document.querySelector(\"{row}\") !== null")).await;
        let [id, leads_to] = ["id", "hash"].map(|what| format!("return document.querySelector(\"{row}\").{what}"));
        let (id, leads_to) = (browser.run(&id).await, browser.run(&leads_to).await);
        let id = id.as_str().filter(|id| !id.is_empty()).unwrap_or_else(|| panic!("{page}: a row without an id"));
        browser.tab_to(id).await;
        browser.run("window.before = document.activeElement").await;
        browser.until(DRAWN_ANEW).await;
        assert_eq!(browser.run("return document.activeElement.id").await, json!(id), "{page}: the focus stays");
        browser.press(ENTER).await;
        browser.says(opened).await;
        assert_eq!(browser.run("return location.hash").await, leads_to, "{page}");
    }

    // A question is answered where the focus is: Enter asks, and Enter says yes.
    browser.run("location.hash = '#/workflows/orders'").await;
    browser.until("return document.getElementById('do-Pause') !== null").await;
    browser.tab_to("do-Pause").await;
    browser.press(ENTER).await;
    browser.says("Nothing is sent until it is resumed").await;
    browser.press(ENTER).await;
    browser.says("paused by api:local").await;
    assert_eq!(database.count("select count(*) from oncebox.workflow where state = 'paused'").await, 1);
}

#[tokio::test]
async fn what_is_being_chosen_or_selected_is_kept_and_the_page_goes_on_afterwards() {
    let Some(browser) = Browser::start(1000, 500, false).await else { return };
    let (_topic, _database, _receiver, relay) = troubled("", &[]).await;
    browser.go(&format!("{}/#/dead-letters", relay.url())).await;
    browser.says("rejected").await;
    browser.run("window.before = document.getElementById('by-reason'); window.before.focus()").await;
    browser.until(KEPT).await;
    let is_kept = browser.run("return document.activeElement === window.before").await;
    assert_eq!(is_kept, json!(true), "an open list is not taken away");
    browser.press(TAB).await;
    browser.until(DRAWN_ANEW).await;

    let select = "window.before = document.querySelector('h1'); getSelection().selectAllChildren(window.before)";
    browser.run(select).await;
    browser.until(KEPT).await;
    assert_eq!(browser.run("return getSelection().toString()").await, json!("Dead letters"));
    browser.run("getSelection().removeAllRanges()").await;
    browser.until(DRAWN_ANEW).await;

    browser.run("location.hash = '#/workflows/orders'").await;
    browser.until("return document.querySelector('#errors a') !== null").await;
    browser.run("scrollTo(0, 200); window.before = document.querySelector('h1')").await;
    browser.until(DRAWN_ANEW).await;
    assert_eq!(browser.run("return scrollY").await, json!(200), "nothing scrolls by itself");
}
