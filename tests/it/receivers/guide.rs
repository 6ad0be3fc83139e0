//! The guide's examples: code is an excerpt of a receiver that is tested, and statements do what the text says.

use std::path::Path;

use tokio_postgres::error::SqlState;

use super::books::Books;

const GUIDE: &str = include_str!("../../../docs/receivers.md");

/// The blocks in one language.
fn blocks(language: &str) -> Vec<&'static str> {
    let opening = format!("\n```{language}\n");
    GUIDE.split(&opening).skip(1).map(|rest| rest.split("\n```").next().expect("a split has a first part")).collect()
}

/// The statement that is called so in the guide.
fn statement(name: &str) -> &'static str {
    let named =
        |block: &&str| block.lines().next().and_then(|line| line.strip_prefix("-- ")?.strip_prefix(name)).is_some();
    let block = blocks("sql").into_iter().find(named).unwrap_or_else(|| panic!("the guide has no `{name}`"));
    block.trim_end().trim_end_matches(';')
}

#[test]
fn code_in_the_guide_is_code_that_runs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/receivers");
    for (language, file) in [("rust", "rust/main.rs"), ("python", "python/main.py"), ("ts", "typescript/main.ts")] {
        let source = std::fs::read_to_string(folder.join(file)).expect("a receiver");
        let shown = blocks(language);
        assert!(!shown.is_empty(), "the guide shows no {language}");
        for block in shown {
            assert!(source.contains(block), "not in {file}:\n{block}");
        }
    }
}

#[test]
fn every_statement_of_the_guide_is_tried_below() {
    let tried = include_str!("guide.rs");
    for block in blocks("sql") {
        let name = block.lines().next().and_then(|line| line.strip_prefix("-- ")).expect("a name");
        let name = name.split(':').next().expect("a split has a first part");
        assert!(tried.contains(&format!("statement(\"{name}\")")), "{name}");
    }
}

#[tokio::test]
async fn old_keys_are_pruned_and_young_ones_stay() {
    let books = Books::open().await;
    books.database.execute(statement("table of keys")).await;
    books.database.execute(statement("index for pruning")).await;
    let insert = "insert into processed_events (key, digest, received_at) values
                      ('old', '', now() - interval '31 days'), ('young', '', now() - interval '29 days')";
    books.database.execute(insert).await;
    books.database.execute(statement("prune")).await;
    assert_eq!(books.keys().await.into_iter().collect::<Vec<_>>(), ["young"]);
}

#[tokio::test]
async fn a_table_partitioned_by_day_cannot_keep_a_key_unique() {
    let books = Books::open().await;
    books.database.execute("create table by_day (key text, day date) partition by range (day)").await;
    let refused = books.database.client.batch_execute("create unique index on by_day (key)").await;
    assert_eq!(refused.expect_err("it lacks the day").code(), Some(&SqlState::FEATURE_NOT_SUPPORTED));
}

#[tokio::test]
async fn a_copy_that_waited_fails_at_repeatable_read() {
    let books = Books::open().await;
    books.database.execute(statement("table of keys")).await;
    let insert = "insert into processed_events (key, digest) values ('one', '') on conflict (key) do nothing";
    let first = books.hold(insert).await;
    let copy = books.hold("set transaction isolation level repeatable read; select 1").await;
    let waiting = tokio::spawn(async move { copy.client.execute(insert, &[]).await });
    books.waiting_for(&first, 1).await;
    first.execute("commit").await;
    let error = waiting.await.unwrap().expect_err("it cannot be serialized");
    assert_eq!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE));
}

#[tokio::test]
async fn a_plain_select_does_not_see_a_key_under_way() {
    let books = Books::open().await;
    books.database.execute(statement("table of keys")).await;
    let first = books.hold("insert into processed_events (key, digest) values ('one', '')").await;
    assert!(books.keys().await.is_empty());
    first.execute("commit").await;
    assert_eq!(books.keys().await.len(), 1);
}

#[tokio::test]
async fn an_older_version_changes_nothing() {
    let books = Books::open().await;
    books.database.execute("create table customers (id bigint primary key, name text, version bigint)").await;
    for (name, version, changed) in [("a", 5_i64, 1), ("older", 4, 0), ("again", 5, 0), ("newer", 6, 1)] {
        let rows = books.database.client.execute(statement("upsert"), &[&1_i64, &name, &version]).await;
        assert_eq!(rows.expect("it is valid"), changed, "{name}");
    }
    let row = &books.database.query("select name, version from customers", &[]).await[0];
    assert_eq!((row.get::<_, String>(0).as_str(), row.get::<_, i64>(1)), ("newer", 6));
}

#[tokio::test]
async fn a_higher_fence_takes_over_and_a_stale_one_finishes_nothing() {
    let books = Books::open().await;
    books.database.execute(statement("effects")).await;
    let client = &books.database.client;
    let take = async |fence: i64| client.execute(statement("take"), &[&"one", &fence]).await.expect("it is valid") == 1;
    let finish =
        async |fence: i64| client.execute(statement("finish"), &[&"one", &fence]).await.expect("it is valid") == 1;
    assert!(take(10).await, "the first");
    assert!(!take(10).await && !take(9).await, "the same, and a stale one");
    assert!(take(11).await, "a newer one takes over");
    assert!(!finish(10).await, "the one that lost it");
    assert!(finish(11).await);
    assert!(!take(12).await && !finish(12).await, "it is done");
}

#[tokio::test]
async fn two_workers_of_an_inbox_take_different_events() {
    let books = Books::open().await;
    books.database.execute(statement("inbox")).await;
    let store = statement("store");
    for (key, stored) in [("one", 1), ("two", 1), ("one", 0)] {
        let rows = books.database.client.execute(store, &[&key, &key.as_bytes()]).await;
        assert_eq!(rows.expect("it is valid"), stored, "{key}");
    }
    let workers = [books.hold("").await, books.hold("").await, books.hold("").await];
    let mut taken = Vec::new();
    for worker in &workers {
        let rows = worker.client.query(statement("next"), &[]).await.expect("it is valid");
        taken.push(rows.first().map(|row| row.get::<_, String>(0)));
    }
    assert_eq!(taken, [Some("one".to_owned()), Some("two".to_owned()), None]);
    // One dies, one is done.
    workers[0].execute("rollback").await;
    workers[2].execute("rollback").await;
    workers[1].execute("update inbox set done_at = now() where key = 'two'; commit").await;
    let rows = books.database.query(statement("next"), &[]).await;
    assert_eq!(rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>(), ["one"]);
}
