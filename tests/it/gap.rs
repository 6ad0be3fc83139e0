//! The statement that notes lost offsets, asked directly.

use oncebox::event::CursorId;
use oncebox::outbox::gap::{self, GapReason};

use crate::fences::case;
use crate::support::{PATIENCE, eventually};

#[tokio::test]
async fn a_loss_is_noted_once_by_all_who_find_it_and_again_after_a_move() {
    let case = case(false).await;
    let note = |lost| {
        let database = case.database.clone();
        async move { gap::record(&database, CursorId(1), lost, GapReason::Retention, "halt").await.expect("it runs") }
    };
    let gaps = async || case.test.count("select count(*) from oncebox.gap").await;
    note(Some((0, 5))).await;
    assert_eq!(gaps().await, 0, "the cursor stands elsewhere by now");
    // Another process is about to note it.
    let begun = "begin; select id from oncebox.cursor for update; insert into oncebox.gap values (1, 1, 5, 'retention', 'halt')";
    case.test.execute(begun).await;
    let noting = tokio::spawn(note(Some((1, 5))));
    let waits = format!(
        "select count(*) from pg_locks as l join pg_stat_activity as a using (pid) where not l.granted and a.query like '%{}.cursor%'",
        case.test.schema
    );
    eventually("it waits for the other", PATIENCE, async || (case.test.count(&waits).await == 1).then_some(())).await;
    case.test.execute("commit").await;
    noting.await.expect("it ends");
    note(Some((1, 6))).await;
    assert_eq!(gaps().await, 1);
    case.test.execute("insert into oncebox.gap values (1, 1, 1, 'operator', 'set')").await;
    note(Some((1, 7))).await;
    assert_eq!(gaps().await, 3);
}
