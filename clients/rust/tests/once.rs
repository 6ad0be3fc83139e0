//! Keys and effects on a real PostgreSQL, each test in a schema of its own; skipped without DATABASE_URL.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use oncebox_receiver::{Answer, Applied, BoxError, Event, Once, TABLE, Trouble, apply_once, digest_of, lookup, prune};
use tokio_postgres::{Client, NoTls, Transaction};

const COPIES: usize = 16;
const DAY: Duration = Duration::from_secs(24 * 3600);

struct Books {
    url: String,
    schema: String,
    client: Client,
}

/// `cargo test` knows no skipping: dev/clients.sh counts these lines.
macro_rules! books {
    () => {
        match std::env::var("DATABASE_URL") {
            Ok(url) if !url.is_empty() => Books::open(url).await,
            _ => {
                println!("\nskipped: {}:{}: no DATABASE_URL", file!(), line!());
                return;
            }
        }
    };
}

impl Books {
    async fn open(url: String) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos();
        let thread = format!("{:?}", std::thread::current().id());
        let schema = format!("clients_rust_{now}_{}", thread.replace(|one: char| !one.is_ascii_digit(), ""));
        let client = connect(&url, &schema).await;
        client
            .batch_execute(&format!("create schema {schema}; {TABLE} create table effects (key text)"))
            .await
            .expect("tables");
        Self { url, schema, client }
    }

    async fn another(&self) -> Client {
        connect(&self.url, &self.schema).await
    }

    async fn close(self) {
        self.client.batch_execute(&format!("drop schema {} cascade", self.schema)).await.expect("it is dropped");
    }

    async fn strings(&self, query: &str) -> Vec<String> {
        self.client.query(query, &[]).await.expect("it is valid").iter().map(|row| row.get(0)).collect()
    }

    async fn effects(&self) -> Vec<String> {
        self.strings("select key from effects order by key").await
    }
}

async fn connect(url: &str, schema: &str) -> Client {
    let mut config: tokio_postgres::Config = url.parse().expect("a URL");
    let (client, connection) =
        config.options(format!("-c search_path={schema}")).connect(NoTls).await.expect("Postgres answers");
    tokio::spawn(connection);
    client
}

fn event(body: &str, fence: Option<i64>) -> Event {
    let source = Some("credits/1/42".to_owned());
    Event { key: "one".to_owned(), digest: digest_of(body.as_bytes()), event: None, attempt: None, fence, source }
}

async fn effect(transaction: &Transaction<'_>) -> Result<(), BoxError> {
    transaction.execute("insert into effects values ('one')", &[]).await?;
    Ok(())
}

async fn process(client: &mut Client, event: &Event) -> Answer {
    Once::default().process(client, event, effect).await
}

#[tokio::test]
async fn copies_at_the_same_time_have_one_effect() {
    let books = books!();
    let mut copies = Vec::new();
    for _ in 0..COPIES {
        let mut client = books.another().await;
        copies.push(tokio::spawn(async move { process(&mut client, &event("{}", None)).await }));
    }
    let mut processed = 0;
    for copy in copies {
        let Answer { status, text, .. } = copy.await.expect("an answer");
        assert_eq!(status, StatusCode::OK);
        processed += usize::from(text == "processed\n");
    }
    assert_eq!(processed, 1);
    assert_eq!(books.effects().await, ["one"]);
    books.close().await;
}

#[tokio::test]
async fn a_repeat_after_a_rollback_has_the_effect() {
    let books = books!();
    let mut client = books.another().await;
    let fails = async |transaction: &Transaction<'_>| {
        effect(transaction).await?;
        Err(BoxError::from("no"))
    };
    let answer = Once::default().process(&mut client, &event("{}", None), fails).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(books.effects().await.is_empty());
    assert_eq!(lookup(&mut client, "one").await.status, StatusCode::NOT_FOUND);
    assert_eq!(process(&mut client, &event("{}", None)).await.text, "processed\n");
    assert_eq!(process(&mut client, &event("{}", None)).await.text, "seen before\n");
    assert_eq!(books.effects().await, ["one"]);
    assert_eq!(lookup(&mut client, "one").await.status, StatusCode::OK);
    books.close().await;
}

#[tokio::test]
async fn other_bytes_under_the_same_key_are_told_apart_and_have_no_effect() {
    let books = books!();
    let mut client = books.another().await;
    assert!(process(&mut client, &event("{}", None)).await.cause.is_none());
    let other = event(r#"["secret"]"#, None);
    let Answer { status, text, cause } = process(&mut client, &other).await;
    assert_eq!((status, text), (StatusCode::OK, "seen before with other bytes; the first are kept\n"));
    let cause = cause.expect("it is told apart");
    assert!(matches!(&cause, Trouble::OtherBody { key, digest } if *key == other.key && *digest == other.digest));
    let told = format!("the key one came with another body, of digest {}; the first is kept", other.digest);
    assert_eq!(cause.to_string(), told);
    assert_eq!(books.effects().await, ["one"]);
    books.close().await;
}

#[tokio::test]
async fn a_word_before_the_key_keeps_two_senders_apart() {
    let books = books!();
    let mut client = books.another().await;
    for sender in ["orders", "stock"] {
        let event = event("{}", None);
        let event = Event { key: format!("{sender}:{}", event.key), ..event };
        assert_eq!(process(&mut client, &event).await.text, "processed\n");
    }
    assert_eq!(books.effects().await, ["one", "one"]);
    assert_eq!(lookup(&mut client, "orders:one").await.status, StatusCode::OK);
    assert_eq!(lookup(&mut client, "one").await.status, StatusCode::NOT_FOUND);
    books.close().await;
}

#[tokio::test]
async fn the_caller_commits() {
    let books = books!();
    let mut client = books.another().await;
    let transaction = client.transaction().await.unwrap();
    for (body, found) in [("{}", Applied::Fresh), ("{}", Applied::Repeat), ("[]", Applied::Conflict)] {
        assert_eq!(apply_once(&transaction, &event(body, None)).await.unwrap(), found);
    }
    transaction.rollback().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    assert_eq!(apply_once(&transaction, &event("{}", None)).await.unwrap(), Applied::Fresh);
    transaction.rollback().await.unwrap();
    books.close().await;
}

#[tokio::test]
async fn a_lower_fence_is_told_apart_and_answered_as_processed() {
    let books = books!();
    let mut client = books.another().await;
    process(&mut client, &event("{}", Some(7))).await;
    let transaction = client.transaction().await.unwrap();
    for (body, fence, found) in [
        ("{}", Some(6), Applied::Stale),
        ("{}", Some(7), Applied::Repeat),
        ("{}", Some(8), Applied::Repeat),
        ("{}", None, Applied::Repeat),
        ("[]", Some(6), Applied::Conflict),
    ] {
        assert_eq!(apply_once(&transaction, &event(body, fence)).await.unwrap(), found, "{body} {fence:?}");
    }
    transaction.rollback().await.unwrap();
    let Answer { status, text, cause } = process(&mut client, &event("{}", Some(6))).await;
    assert_eq!((status, text), (StatusCode::OK, "seen before; a newer attempt was processed\n"));
    let cause = cause.expect("it is told apart");
    assert!(matches!(cause, Trouble::LowerFence { fence: 6, .. }), "{cause:?}");
    assert_eq!(books.effects().await, ["one"]);
    books.close().await;
}

#[tokio::test]
async fn a_key_that_is_held_is_busy() {
    let books = books!();
    let (mut holder, mut client) = (books.another().await, books.another().await);
    let held = holder.transaction().await.unwrap();
    apply_once(&held, &event("{}", None)).await.unwrap();
    let hasty = Once { lock_timeout: Duration::from_millis(200) };
    assert_eq!(hasty.process(&mut client, &event("{}", None), effect).await.status, StatusCode::CONFLICT);
    assert_eq!(lookup(&mut client, "one").await.status, StatusCode::CONFLICT);
    held.rollback().await.unwrap();
    assert_eq!(lookup(&mut client, "one").await.status, StatusCode::NOT_FOUND);
    books.close().await;
}

#[tokio::test]
async fn a_commit_that_fails_is_in_doubt() {
    let books = books!();
    let mut client = books.another().await;
    let text = "alter table effects add constraint once unique (key) deferrable initially deferred;
                insert into effects values ('one')";
    client.batch_execute(text).await.unwrap();
    assert_eq!(process(&mut client, &event("{}", None)).await.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(lookup(&mut client, "one").await.status, StatusCode::NOT_FOUND);
    books.close().await;
}

#[tokio::test]
async fn an_effect_that_hides_its_failure_is_not_processed() {
    let books = books!();
    let mut client = books.another().await;
    let hides = async |transaction: &Transaction<'_>| {
        transaction.batch_execute("select 1 / 0").await.expect_err("it divides by zero");
        Ok(())
    };
    let answer = Once::default().process(&mut client, &event("{}", None), hides).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(lookup(&mut client, "one").await.status, StatusCode::NOT_FOUND);
    books.close().await;
}

#[tokio::test]
async fn an_effect_that_rolls_back_by_itself_is_not_processed() {
    let books = books!();
    let mut client = books.another().await;
    let hides = async |transaction: &Transaction<'_>| {
        transaction.batch_execute("select 1 / 0").await.expect_err("it divides by zero");
        Ok(transaction.batch_execute("rollback").await?)
    };
    let answer = Once::default().process(&mut client, &event("{}", None), hides).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(books.effects().await.is_empty());
    assert_eq!(lookup(&mut client, "one").await.status, StatusCode::NOT_FOUND);
    let repeats = async |transaction: &Transaction<'_>| {
        effect(transaction).await?;
        transaction.batch_execute("rollback").await?;
        transaction.batch_execute("begin").await?;
        effect(transaction).await
    };
    let answer = Once::default().process(&mut client, &event("{}", None), repeats).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(books.effects().await.is_empty());
    assert_eq!(lookup(&mut client, "one").await.status, StatusCode::NOT_FOUND);
    books.close().await;
}

#[tokio::test]
async fn an_effect_may_roll_back_to_a_savepoint() {
    let books = books!();
    let mut client = books.another().await;
    let tries = async |transaction: &Transaction<'_>| {
        transaction.batch_execute("savepoint here").await?;
        transaction.batch_execute("select 1 / 0").await.expect_err("it divides by zero");
        transaction.batch_execute("rollback to savepoint here").await?;
        effect(transaction).await
    };
    let answer = Once::default().process(&mut client, &event("{}", None), tries).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(books.effects().await, ["one"]);
    assert_eq!(lookup(&mut client, "one").await.status, StatusCode::OK);
    books.close().await;
}

#[tokio::test]
async fn an_effect_that_waits_too_long_is_not_busy() {
    let books = books!();
    let (mut holder, mut client) = (books.another().await, books.another().await);
    let held = holder.transaction().await.unwrap();
    held.batch_execute("lock table effects").await.unwrap();
    let hasty = Once { lock_timeout: Duration::from_millis(200) };
    let answer = hasty.process(&mut client, &event("{}", None), effect).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    held.rollback().await.unwrap();
    assert_eq!(lookup(&mut client, "one").await.status, StatusCode::NOT_FOUND);
    books.close().await;
}

#[tokio::test]
async fn a_connection_that_is_lost_is_not_processed() {
    let books = books!();
    let (mut client, mut another) = (books.another().await, books.another().await);
    let loses = async |transaction: &Transaction<'_>| {
        let _ = transaction.batch_execute("select pg_terminate_backend(pg_backend_pid())").await;
        Ok(())
    };
    let answer = Once::default().process(&mut client, &event("{}", None), loses).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(process(&mut client, &event("{}", None)).await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(lookup(&mut another, "one").await.status, StatusCode::NOT_FOUND);
    books.close().await;
}

#[tokio::test]
async fn old_keys_are_pruned_a_few_at_a_time() {
    let books = books!();
    let text = "insert into processed_events
                select key, '', null, null, now() - make_interval(days => days)
                  from (values ('oldest', 40), ('older', 35), ('old', 31), ('young', 29)) as keys (key, days)";
    books.client.batch_execute(text).await.unwrap();
    assert_eq!(prune(&books.client, 30 * DAY, 2).await.unwrap(), 2);
    assert_eq!(books.strings("select key from processed_events order by key").await, ["old", "young"]);
    assert_eq!(prune(&books.client, 30 * DAY, 1000).await.unwrap(), 1);
    books.close().await;
}
