//! OAuth 2: one token for many deliveries, renewed in time, and nothing in doubt when there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use oncebox::receiver::Answer;
use oncebox::send::outcome::{Outcome, Trouble};

use crate::support::attempt::{attempt, rules, target, workflow};
use crate::support::process::{Config, free_port};
use crate::support::servers::{Reply, TokenServer};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

const SECRETS: [(&str, &str); 2] = [("CLIENT_ID", "the client"), ("CLIENT_SECRET", "s3cr3t/+")];

fn oauth2(tokens: &str) -> String {
    format!(
        "auth: {{oauth2: {{tokenUrl: \"http://{tokens}/token\", clientId: \"${{CLIENT_ID}}\", clientSecret: \"${{CLIENT_SECRET}}\", scopes: [a, b]}}}}"
    )
}

/// The same, with references that need no environment.
fn oauth2_in(folder: &std::path::Path, tokens: &str) -> String {
    for (name, value) in SECRETS {
        std::fs::write(folder.join(name), value).expect("written");
    }
    let file = |name: &str| format!("${{file:{}}}", folder.join(name).display());
    oauth2(tokens).replace("${CLIENT_ID}", &file("CLIENT_ID")).replace("${CLIENT_SECRET}", &file("CLIENT_SECRET"))
}

async fn settled(database: &TestDatabase, wanted: i64) {
    eventually(&format!("{wanted} are settled"), PATIENCE, async || {
        let done = "select count(*) from oncebox.done where state = 'completed'";
        (database.count(done).await == wanted).then_some(())
    })
    .await;
}

async fn in_doubt(relay: &Relay) -> f64 {
    relay.metric("oncebox_in_doubt_total", "workflow=\"orders\"").await.expect("the metric is there")
}

#[tokio::test]
async fn many_requests_at_once_share_one_token() {
    let (topic, database) = (Topic::new(4).await, TestDatabase::new().await);
    let tokens = TokenServer::start("127.0.0.1:0", |_| Reply {
        after: Duration::from_secs(3),
        ..Reply::token("the-token", 3600)
    })
    .await;
    let receiver = TestReceiver::deciding(|seen| match seen.header("authorization") {
        Some("Bearer the-token") => Answer::Process,
        _ => Answer::status(401),
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.endpoint = oauth2(&tokens.address.to_string());
    config.delivery.push_str("\n      concurrency: 32");
    (config.timeout, config.lease) = ("10s", "13s");
    topic.send_orders(0..200);
    let relay = Relay::start_in(&config, "", &SECRETS);
    // The first answer of the token endpoint takes long enough for all slots to wait for it.
    eventually("32 requests are under way before there is a token", PATIENCE, async || {
        let waiting = relay.metric("oncebox_in_flight", "workflow=\"orders\"").await? >= 32.0;
        (waiting && receiver.seen().is_empty()).then_some(())
    })
    .await;
    settled(&database, 200).await;
    let asked = tokens.asked();
    assert_eq!((asked.len(), receiver.seen().len()), (1, 200), "one token, and each order sent once");
    assert_eq!(asked[0].form, "grant_type=client_credentials&scope=a+b");
    // `the+client:s3cr3t%2F%2B`, encoded as a form before it is joined.
    assert_eq!(asked[0].authorization.as_deref(), Some("Basic dGhlK2NsaWVudDpzM2NyM3QlMkYlMkI="));
}

#[tokio::test]
async fn a_token_is_renewed_before_it_expires() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let began = Instant::now();
    let born: Arc<std::sync::Mutex<Vec<Instant>>> = Arc::default();
    let births = Arc::clone(&born);
    let tokens = TokenServer::start("127.0.0.1:0", move |asked| {
        births.lock().unwrap().push(Instant::now());
        Reply::token(&format!("t{}", asked.number), 2)
    })
    .await;
    let receiver = TestReceiver::deciding(move |seen| {
        let number =
            seen.header("authorization").and_then(|value| value.strip_prefix("Bearer t")?.parse::<usize>().ok());
        let birth = number.and_then(|number| born.lock().unwrap().get(number - 1).copied());
        match birth {
            // With a second's grace, as servers give: this machine may be busy.
            Some(birth) if birth.elapsed() < Duration::from_secs(3) => Answer::Process,
            _ => Answer::status(401),
        }
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.endpoint = oauth2(&tokens.address.to_string());
    let relay = Relay::start_in(&config, "", &SECRETS);
    relay.ready().await;
    // One order after the other, until the third token is in use.
    let mut sent = 0;
    while tokens.asked().len() < 3 {
        topic.send_orders(sent..sent + 1);
        sent += 1;
        settled(&database, i64::from(sent)).await;
        assert!(began.elapsed() < PATIENCE);
    }
    assert_eq!(receiver.seen().len(), sent as usize, "no order met an expired token");
}

#[tokio::test]
async fn a_401_renews_the_token_once_for_all() {
    let (topic, database) = (Topic::new(4).await, TestDatabase::new().await);
    let tokens = TokenServer::start("127.0.0.1:0", |asked| Reply::token(&format!("t{}", asked.number), 3600)).await;
    let valid = Arc::new(AtomicUsize::new(1));
    let accepted = Arc::clone(&valid);
    let receiver = TestReceiver::deciding(move |seen| {
        let wanted = format!("Bearer t{}", accepted.load(Ordering::Acquire));
        if seen.header("authorization") == Some(wanted.as_str()) { Answer::Process } else { Answer::status(401) }
    })
    .await;
    let mut config = Config::new(&topic, &database, &receiver);
    config.endpoint = oauth2(&tokens.address.to_string());
    let relay = Relay::start_in(&config, "", &SECRETS);
    topic.send_orders(0..50);
    settled(&database, 50).await;
    assert_eq!(tokens.asked().len(), 1);
    // Revoked at the receiver, long before it expires.
    valid.store(2, Ordering::Release);
    topic.send_orders(50..150);
    settled(&database, 150).await;
    assert_eq!(tokens.asked().len(), 2, "all that were refused share one renewal");
    assert!(relay.metric("oncebox_attempts_total", "outcome=\"http_4xx\"").await.unwrap_or_default() >= 1.0);
    assert_eq!((in_doubt(&relay).await, database.count("select count(*) from oncebox.dead_letter").await), (0.0, 0));
}

#[tokio::test]
async fn a_token_endpoint_that_is_down_delays_events_and_puts_none_in_doubt() {
    let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
    let receiver = TestReceiver::start().await;
    // A port that nobody listens on, taken again later.
    let port = format!("127.0.0.1:{}", free_port());
    let mut config = Config::new(&topic, &database, &receiver);
    config.endpoint = oauth2(&port);
    let relay = Relay::start_in(&config, "", &SECRETS);
    topic.send_orders(0..20);
    let attempts = async |outcome: &str| {
        relay.metric("oncebox_attempts_total", &format!("outcome=\"{outcome}\"")).await.unwrap_or_default()
    };
    eventually("attempts fail for want of a token", PATIENCE, async || {
        (attempts("connect").await >= 20.0).then_some(())
    })
    .await;
    // Then it answers, and badly; then not at all; then well.
    let mood = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&mood);
    let tokens = TokenServer::start(&port, move |_| match told.load(Ordering::Acquire) {
        0 => Reply::status(500, "no tokens today"),
        1 => Reply { after: Duration::from_secs(3600), ..Reply::token("late", 60) },
        _ => Reply::token("good", 60),
    })
    .await;
    eventually("refusals are counted", PATIENCE, async || (attempts("other").await >= 5.0).then_some(())).await;
    mood.store(1, Ordering::Release);
    eventually("so is silence", PATIENCE, async || (attempts("timeout").await >= 5.0).then_some(())).await;
    assert_eq!(receiver.seen().len(), 0, "nothing is sent without a token");
    assert_eq!(database.count("select count(*) from oncebox.retry where in_doubt").await, 0);
    mood.store(2, Ordering::Release);
    settled(&database, 20).await;
    assert_eq!(receiver.seen().len(), 20);
    assert_eq!(in_doubt(&relay).await, 0.0);
    assert!(!tokens.asked().is_empty());
}

#[tokio::test]
async fn a_token_endpoint_stands_under_the_rules_of_deliveries() {
    let receiver = TestReceiver::start().await;
    let folder = tempfile::tempdir().unwrap();
    let decoy = TokenServer::start("127.0.0.1:0", |_| Reply::token("stolen", 60)).await;
    let elsewhere = format!("http://{}/token", decoy.address);
    let long = format!(r#"{{"access_token":"a","padding":"{}"}}"#, "x".repeat(70_000));
    for (name, wanted, says, reply) in [
        (
            "a redirect",
            Trouble::Token,
            "answered 302",
            Reply { headers: vec![("location", elsewhere)], ..Reply::status(302, "") },
        ),
        ("too long", Trouble::Token, "longer than 64 KiB", Reply::status(200, &long)),
        ("no token", Trouble::Token, "no bearer token", Reply::status(200, r#"{"access_token":"a b"}"#)),
        ("a named error", Trouble::Token, "401 (invalid_client)", Reply::status(401, r#"{"error":"invalid_client"}"#)),
        ("an echo", Trouble::Token, "answered 400", Reply::status(400, r#"{"error":"s3cr3t/+"}"#)),
    ] {
        let reply = Arc::new(reply);
        let tokens = TokenServer::start("127.0.0.1:0", move |_| Reply {
            status: reply.status,
            headers: reply.headers.clone(),
            body: reply.body.clone(),
            after: Duration::ZERO,
        })
        .await;
        let workflow = workflow(&receiver.url(), &oauth2_in(folder.path(), &tokens.address.to_string()));
        let outcome = attempt(&target(&workflow), &workflow).await;
        let error = outcome.error.unwrap_or_default();
        assert_eq!(outcome.outcome, Outcome::NeverSent(wanted), "{name}: {error}");
        assert!(error.contains(says) && !error.contains("s3cr3t"), "{name}: {error}");
    }
    assert_eq!((decoy.asked().len(), receiver.seen().len()), (0, 0));
    // Its address is checked as the endpoint's is.
    let forbidden = workflow(&receiver.url(), &oauth2_in(folder.path(), "127.0.0.9:1"));
    let target = oncebox::send::connect::Target::new(&forbidden, &rules(&["127.0.0.1/32"])).unwrap();
    let outcome = attempt(&target, &forbidden).await;
    assert_eq!(outcome.outcome, Outcome::NeverSent(Trouble::Blocked), "{:?}", outcome.error);
}

#[tokio::test]
async fn a_token_endpoint_that_wants_the_secret_in_the_body_gets_it_there() {
    let receiver = TestReceiver::start().await;
    let folder = tempfile::tempdir().unwrap();
    let tokens = TokenServer::start("127.0.0.1:0", |asked| match asked.authorization {
        Some(_) => Reply::status(401, r#"{"error":"invalid_client"}"#),
        None if asked.form.ends_with("&client_id=the+client&client_secret=s3cr3t%2F%2B") => Reply::token("t", 1),
        None => Reply::status(400, ""),
    })
    .await;
    let workflow = workflow(&receiver.url(), &oauth2_in(folder.path(), &tokens.address.to_string()));
    let target = target(&workflow);
    assert_eq!(attempt(&target, &workflow).await.outcome, Outcome::Answered { status: 200, retry_after: None });
    assert_eq!(tokens.asked().len(), 2);
    // What worked is remembered: a renewal is one request.
    eventually("the token is renewed", PATIENCE, async || {
        attempt(&target, &workflow).await;
        (tokens.asked().len() > 2).then_some(())
    })
    .await;
    assert!(tokens.asked()[2..].iter().all(|asked| asked.authorization.is_none()));
}
