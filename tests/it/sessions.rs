//! Sessions that write to the same cursors at the same time, by the statements that relays send: none waits for another for ever.

use std::sync::Arc;
use std::time::Duration;

use oncebox::event::CursorId;
use oncebox::outbox::delivery::{self, Progress};
use oncebox::outbox::settle;

use crate::alike::Columns;
use crate::ends::{Held, connected, held};
use crate::fences::{FENCE, TIMELINE};
use crate::support::{PATIENCE, eventually};

const CURSORS: i64 = 6;
const SESSIONS: i64 = 4;
const ROUNDS: i64 = 80;

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }

    /// Some of the cursors, in any order.
    fn cursors(&mut self) -> Vec<i64> {
        let mut all: Vec<i64> = (1..=CURSORS).collect();
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at + 1));
        }
        let many = 2 + self.below(all.len() - 1);
        all.truncate(many);
        all
    }
}

/// Does one thing after the other to some of the cursors. What it settles nobody else does, but now and then it does so again.
async fn session(held: Arc<Held>, number: i64, timeline: Arc<str>) {
    let (database, client) = (held.test.opened(), connected().await);
    let mut random = Random(u64::try_from(number).expect("a count"));
    for round in 0..ROUNDS {
        let cursors = random.cursors();
        let again = i64::from(round > 0 && random.below(4) == 0);
        let offset = number * ROUNDS + round - again;
        match random.below(3) {
            0 => {
                let progress = |cursor: &i64| {
                    let (cursor, timeline) = (CursorId(*cursor), Arc::clone(&timeline));
                    Progress { cursor, epoch: FENCE, settled_to: 0, timeline }
                };
                let asked: Vec<Progress> = cursors.iter().map(progress).collect();
                let mine = (held.process, Duration::from_secs(3600));
                let kept = delivery::extend(&database, "w", mine, &asked).await.expect("leases are extended");
                assert_eq!(kept.len(), cursors.len());
            }
            1 => {
                let standing = "select id, next_offset from oncebox.cursor where id = any($1) order by random()";
                let standing = standing.replace("oncebox.", &format!("{}.", held.test.schema));
                let mut columns = Columns { process: held.process, ..Columns::default() };
                for row in client.query(&standing, &[&cursors]).await.expect("it runs") {
                    let (id, next): (i64, i64) = (row.get(0), row.get(1));
                    columns.batch((id, FENCE, FENCE), next, next + 1, &[next]);
                }
                // Nothing of those that another session has moved meanwhile.
                columns.append_alike(&client, &held.test.schema).await;
            }
            _ => {
                let batch: Vec<_> = cursors.iter().map(|cursor| held.answer(*cursor, offset, FENCE)).collect();
                settle::completed(&database, held.process, &batch).await.expect("ends are written");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_settle_extend_and_append_the_same_cursors_never_deadlock() {
    let held = Arc::new(held(CURSORS, SESSIONS * ROUNDS).await);
    let timeline: String = held.test.query(&format!("select {TIMELINE}"), &[]).await[0].get(0);
    let timeline: Arc<str> = timeline.into();
    let begin = |number| tokio::spawn(session(Arc::clone(&held), number, Arc::clone(&timeline)));
    let sessions: Vec<_> = (0..SESSIONS).map(begin).collect();
    for session in sessions {
        session.await.expect("each of its statements went through");
    }
    let done = "select count(*) from oncebox.done";
    let counted = "select sum(completed)::bigint from oncebox.delivery";
    assert_eq!(held.test.count(done).await, held.test.count(counted).await, "each end is counted once");
    let stored = format!("select count(*) - {} from oncebox.outbox", CURSORS * SESSIONS * ROUNDS);
    assert_eq!(
        held.test.count(&stored).await,
        held.test.count("select sum(appended)::bigint from oncebox.cursor").await
    );
}

/// The key was there before, of an event that is long over: nobody who makes it anew is waited for then. What makes them wait is its lock.
#[tokio::test]
async fn of_two_transactions_with_one_key_the_second_waits_for_the_first_and_meets_its_event() {
    let held = held(2, 1).await;
    held.test.execute("insert into oncebox.unique_key (workflow, fingerprint) values ('w', '\\x01')").await;
    let take = |cursor: i64| {
        format!(
            "select fate from oncebox.take_unique('{}'::uuid, array[{cursor}]::bigint[], array[{FENCE}]::bigint[], array[1]::bigint[],
                 array['w'], array['\\x01'::bytea], array[{cursor}]::bigint[], array[1]::bigint[], array[0],
                 array['available,completed'], array[null]::text[], array['ignore'],
                 array[3600]::float8[], array[null]::float8[], array[false])",
            held.process
        )
        .replace("oncebox.", &format!("{}.", held.test.schema))
    };
    let mut first = connected().await;
    let first_pid: i32 = first.query_one("select pg_backend_pid()", &[]).await.expect("it runs").get(0);
    let storing = first.transaction().await.expect("it begins");
    assert_eq!(storing.query_one(&take(1), &[]).await.expect("it runs").get::<_, &str>(0), "stored");
    let (second, asked) = (connected().await, take(2));
    let waiting =
        tokio::spawn(async move { second.query_one(&asked, &[]).await.expect("it runs").get::<_, String>(0) });
    let blocked = "select count(*) from pg_stat_activity where $1 = any (pg_blocking_pids(pid))";
    eventually("the second waits for the first", PATIENCE, async || {
        let rows = held.test.query(blocked, &[&first_pid]).await;
        (rows[0].get::<_, i64>(0) > 0).then_some(())
    })
    .await;
    storing.commit().await.expect("it is committed");
    assert_eq!(waiting.await.expect("it ends"), "suppressed");
}
