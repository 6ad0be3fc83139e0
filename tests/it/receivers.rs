//! The receivers of docs/receivers, as processes on a real Postgres: each key has its effect once, whatever happens to
//! requests, answers and the receiver itself; and what they answer is true. So do the samples of the kits in clients/, which
//! `make test-clients` asks for.

mod books;
mod delivery;
mod example;
mod flawed;
mod guide;
mod signed;
mod signed_delivery;

use books::Books;
use delivery::{COPIES, Delivery};
use example::{Example, Language, credit, request};
use signed::only_good_signatures_are_let_in;
use signed_delivery::every_attempt_of_oncebox_is_signed_with_every_secret;

use crate::support::lossy::Mode;
use crate::support::wire::{self, Answer};
use crate::support::{PATIENCE, eventually};

/// A commit that inserts a key waits for whoever has locked this table.
const COMMITS: &str = "
    create table commits ();
    create function wait_for_commits() returns trigger language plpgsql set lock_timeout = 0 as $$
        begin lock table commits in access share mode; return null; end $$;
    create constraint trigger waits after insert on processed_events deferrable initially deferred
       for each row execute function wait_for_commits()";

macro_rules! in_every_language {
    ($($claim:ident),*) => {
        in_every_language!(@ rust, Rust, $($claim),*);
        in_every_language!(@ python, Python, $($claim),*);
        in_every_language!(@ typescript, TypeScript, $($claim),*);
        mod kits {
            in_every_language!(@ rust, RustKit, $($claim),*);
            in_every_language!(@ python, PythonKit, $($claim),*);
            in_every_language!(@ typescript, TypeScriptKit, $($claim),*);
            in_every_language!(@ go, GoKit, $($claim),*);
            in_every_language!(@ java, JavaKit, $($claim),*);
        }
    };
    (@ $module:ident, $language:ident, $($claim:ident),*) => {
        mod $module {
            use crate::receivers;

            $(#[tokio::test]
            async fn $claim() {
                receivers::$claim(receivers::Language::$language).await;
            })*
        }
    };
}

in_every_language!(
    each_key_has_its_effect_once,
    copies_and_questions_are_answered_truthfully,
    what_cannot_be_processed_leaves_no_trace,
    only_good_signatures_are_let_in,
    every_attempt_of_oncebox_is_signed_with_every_secret
);

async fn each_key_has_its_effect_once(language: Language) {
    let Some(program) = language.program() else { return };
    let books = Books::open().await;
    let mut example = Example::start(program, &books, "");
    let delivery = Delivery::start(example.address).await;

    // Keys that the receiver has never seen, each in eight copies at the same time.
    delivery.send(0..40);
    let answers = delivery.post_copies(example.address, 40).await;
    let count = |answer: &Answer| answers.iter().filter(|one| *one == answer).count();
    let (processed, seen_before) = (count(&says(200, "processed\n")), count(&says(200, "seen before\n")));
    assert_eq!(processed, books.keys().await.len());
    assert!(processed > 20 && seen_before > 20 * (COPIES - 1), "{answers:?}");
    // On a machine with more to do than it can, a copy may also hear that it is to come back.
    let later = answers.iter().filter(|answer| matches!(answer.status, 409 | 503)).count();
    assert_eq!(processed + seen_before + later, answers.len(), "{answers:?}");

    // One in three requests or answers is lost or late, and the receiver dies with transactions open.
    delivery.proxy.set(Mode::Lossy);
    delivery.send(40..160);
    let accounts = books.hold("lock table accounts in share row exclusive mode").await;
    delivery.send(160..240);
    books.waiting_for(&accounts, 2).await;
    example.kill();
    example = Example::start(program, &books, "");
    delivery.proxy.redirect(example.address);
    accounts.execute("rollback").await;

    // It dies again after it has told Postgres to commit: the keys are there, and nobody has answered.
    books.database.execute(COMMITS).await;
    let commits = books.hold("lock table commits").await;
    delivery.send(240..270);
    books.waiting_for(&commits, 2).await;
    example.kill();
    let before = books.keys().await.len();
    commits.execute("rollback").await;
    let committed = async || (books.keys().await.len() > before).then_some(());
    eventually("what was under way is committed", PATIENCE, committed).await;
    example = Example::start(program, &books, "");
    delivery.proxy.redirect(example.address);
    delivery.send(270..300);

    // A record that is no credit is refused for good and has no effect.
    delivery.topic.send(None, r#"{"id":300,"account":"account-0"}"#);
    delivery.settled(300, 1).await;
    assert_eq!(delivery.differences(&books, 0..300).await, Vec::<String>::new());
    assert!(delivery.proxy.answers_lost() > 0, "there were repeats of what was processed");
    let reason = delivery.database.query("select reason::text from oncebox.dead_letter", &[]).await;
    assert_eq!(reason[0].get::<_, String>(0), "rejected");

    assert!(delivery.fences_rise(), "a later attempt has a higher fence");

    for key in books.keys().await {
        assert_eq!(example.get(&key).await, 200, "{key}");
    }
    for key in delivery.keys("discarded").await {
        assert_eq!(example.get(&key).await, 404, "{key}");
    }
}

fn says(status: u16, text: &str) -> Answer {
    Answer { status, text: text.to_owned(), retry_after: None }
}

fn digest_of(body: &str) -> String {
    format!("sha-256=:{}:", openssl::base64::encode_block(&openssl::sha::sha256(body.as_bytes())))
}

async fn copies_and_questions_are_answered_truthfully(language: Language) {
    let Some(program) = language.program() else { return };
    let books = Books::open().await;
    let example = Example::start(program, &books, "");
    let (ten, twenty) = (credit("a", 10), credit("a", 20));
    let post = |key: &'static str, body: &str| {
        let (address, request) = (example.address, request(&[("webhook-id", key)], body));
        tokio::spawn(async move { wire::ask(address, &request).await })
    };
    let insert = |key: &str| format!("insert into processed_events (key, digest) values ('{key}', 'other')");
    let busy = says(409, "this key is being processed\n");

    // While a transaction holds the key nobody can know, and neither answer says that they do.
    assert_eq!(example.get("one").await, 404);
    let first = books.hold(&insert("one")).await;
    assert_eq!(example.get("one").await, 409);
    assert_eq!(example.post("one", &ten).await, busy);
    // It rolls back: the copy that waits has the effect.
    let waiting = post("one", &ten);
    books.waiting_for(&first, 1).await;
    first.execute("rollback").await;
    assert_eq!(waiting.await.unwrap(), says(200, "processed\n"));
    assert_eq!(example.get("one").await, 200);

    // It commits: the copy that waits has none.
    let first = books.hold(&insert("two")).await;
    let waiting = post("two", &ten);
    books.waiting_for(&first, 1).await;
    first.execute("commit").await;
    assert_eq!(waiting.await.unwrap(), says(200, "seen before with other bytes; the first are kept\n"));
    assert_eq!(example.get("two").await, 200);

    // It stands still: Postgres ends it.
    let first = books.hold(&insert("three")).await;
    let waiting = post("three", &ten);
    books.waiting_for(&first, 1).await;
    first.execute("set local idle_in_transaction_session_timeout = '200ms'").await;
    assert_eq!(waiting.await.unwrap(), says(200, "processed\n"));

    // A repeat, and a key used twice: the first is kept, and the log tells of the other without showing it.
    assert_eq!(example.post("one", &ten).await, says(200, "seen before\n"));
    assert_eq!(example.post("one", &twenty).await, says(200, "seen before with other bytes; the first are kept\n"));
    assert_eq!(books.balance("a").await, 20, "one and three");
    let said = example.said();
    assert!(said.contains("came with another body") && said.contains(&digest_of(&twenty)), "{said}");
    assert!(!said.contains(&twenty), "{said}");

    // What was kept: the digest as Oncebox writes it, the source and the fence of the copy that had the effect.
    let headers = [("webhook-id", "four"), ("oncebox-source", "credits/1/42"), ("oncebox-fence", "7")];
    wire::ask(example.address, &request(&headers, &ten)).await;
    let text = "select digest, source, fence, received_at > now() - interval '1 hour' from processed_events where key = 'four'";
    let row = &books.database.query(text, &[]).await[0];
    let (digest, source, fence, recent): (String, String, i64, bool) = (row.get(0), row.get(1), row.get(2), row.get(3));
    assert_eq!((digest, source.as_str(), fence, recent), (digest_of(&ten), "credits/1/42", 7, true));

    // A change that the source repeats may come with a lower fence: it is processed all the same.
    let answer = wire::ask(example.address, &request(&[("webhook-id", "four"), ("oncebox-fence", "6")], &ten)).await;
    assert!(answer.status == 200 && answer.text.starts_with("seen before"), "{answer:?}");
}

async fn what_cannot_be_processed_leaves_no_trace(language: Language) {
    let Some(program) = language.program() else { return };
    let books = Books::open().await;
    let example = Example::start(program, &books, "");
    let ten = credit("a", 10);

    let no_credits = [
        "",
        "{",
        "null",
        "[1]",
        r#"{"data":null}"#,
        r#"{"data":{"account":"a"}}"#,
        r#"{"data":{"amount":1}}"#,
        r#"{"data":{"account":"a","amount":"10"}}"#,
        r#"{"data":{"account":"a","amount":1.5}}"#,
        r#"{"data":{"account":"a","amount":9007199254740993}}"#,
        r#"{"data":{"account":7,"amount":1}}"#,
        r#"{"data":{"account":"\u0000","amount":1}}"#,
        r#"{"data":{"account":"\ud800","amount":1}}"#,
        r#"{"data":{"account":"a","amount":true}}"#,
    ];
    for body in no_credits {
        assert_eq!(example.post("one", body).await.status, 422, "{body}");
    }
    assert_eq!(wire::ask(example.address, &request(&[], &ten)).await.status, 400, "no key");

    // The effect fails after the key was inserted: neither stays.
    books.database.execute("alter table accounts rename to elsewhere").await;
    let answer = example.post("one", &ten).await;
    assert_eq!((answer.status, answer.retry_after.as_deref()), (503, Some("1")));
    assert_eq!(example.get("one").await, 404);
    books.database.execute("alter table elsewhere rename to accounts").await;

    // The commit itself fails: no 2xx, and nobody claims to know that it was not made.
    let fails = "create function refuse() returns trigger language plpgsql as $$ begin raise 'no'; end $$;
         create constraint trigger refuse after insert on processed_events deferrable initially deferred
            for each row execute function refuse()";
    books.database.execute(fails).await;
    assert_eq!(example.post("one", &ten).await.status, 500);
    assert_eq!(example.get("one").await, 404);
    books.database.execute("drop trigger refuse on processed_events").await;

    assert!(books.keys().await.is_empty() && books.balances().await.is_empty());
    assert_eq!(example.post("one", &ten).await, says(200, "processed\n"));
    assert_eq!(books.balance("a").await, 10);
}
