//! Ends are kept 64 offsets to a row: each event still ends once, by itself, and tells how.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use oncebox::outbox::sql::Schema;
use oncebox::receiver::{Answer, Seen};
use tokio_postgres::NoTls;

use crate::support::process::{Config, migrated};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually, services};

const BEFORE: [&str; 6] = [
    include_str!("../../sql/migrations/0001_foundation.sql"),
    include_str!("../../sql/migrations/0002_functions.sql"),
    include_str!("../../sql/migrations/0003_searches.sql"),
    include_str!("../../sql/migrations/0004_fleet.sql"),
    include_str!("../../sql/migrations/0005_plans.sql"),
    include_str!("../../sql/migrations/0006_today.sql"),
];

#[tokio::test]
async fn what_had_ended_before_an_upgrade_has_ended_so_after_it() {
    let database = TestDatabase::new().await;
    let schema = Schema::new(&database.schema);
    for migration in BEFORE {
        database.client.batch_execute(&schema.text(migration)).await.expect("it runs");
    }
    database
        .execute(
            "select oncebox.make_partitions(3);
             insert into oncebox.done (cursor, record_offset, event_index, generation, day, state, sends, status, at)
             select c, n, n % 2, 0, oncebox.today() + (n % 3)::int, (array['completed', 'discarded', 'cancelled'])[1 + n % 3],
                    n % 7, 200 + n % 5, now() - n * interval '1 second'
               from generate_series(0, 500) as n, unnest(array[1, 99]) as c
              where n % 5 <> 0",
        )
        .await;
    let ends =
        "select cursor || ' ' || record_offset || ' ' || event_index || ' ' || generation || ' ' || day || ' ' || state
                       || ' ' || sends || ' ' || status || ' ' || at from oncebox.done order by 1";
    let read = async || database.query(ends, &[]).await.iter().map(|row| row.get(0)).collect::<Vec<String>>();
    let before = read().await;
    migrated(&database);
    assert_eq!(before.len(), 800);
    assert_eq!(read().await, before);
    assert_eq!(database.count("select count(*) from oncebox.ended where again <> 0").await, 0);
}

#[tokio::test]
async fn of_many_that_end_the_same_events_at_once_each_event_has_one() {
    let database = TestDatabase::new().await;
    migrated(&database);
    let offsets = 300;
    let mut all = Vec::new();
    for task in 0..6 {
        let (client, connection) = tokio_postgres::connect(&services().database_url, NoTls).await.expect("an answer");
        tokio::spawn(connection);
        let finish = format!(
            "select record_offset from {schema}.finish(
                 array_fill(7::bigint, array[cardinality($1::bigint[])]), $1, array_fill(0, array[cardinality($1)]),
                 array_fill(0, array[cardinality($1)]), array_fill({schema}.today(), array[cardinality($1)]), 'completed',
                 array_fill(1, array[cardinality($1)]), array_fill({task}, array[cardinality($1)]))",
            schema = database.schema
        );
        all.push(tokio::spawn(async move {
            let mut first: Vec<i64> = Vec::new();
            for turn in 0..40_i64 {
                // Others take other ones together, in the same blocks.
                let asked: Vec<i64> = (0..offsets).filter(|n| (n * (task + 2) + turn) % 7 < 3).collect();
                let rows = client.query(&finish, &[&asked]).await.expect("it runs");
                first.extend(rows.iter().map(|row| row.get::<_, i64>(0)));
            }
            first
        }));
    }
    let mut first = Vec::new();
    for task in all {
        first.extend(task.await.expect("it ends"));
    }
    first.sort_unstable();
    assert_eq!(first, (0..offsets).collect::<Vec<i64>>(), "each ended once, for one of them");
    assert_eq!(database.count("select count(*) from oncebox.done").await, offsets);
}

#[tokio::test]
async fn the_status_and_the_time_of_each_delivery_are_kept() {
    let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
    let answered: Arc<Mutex<HashMap<String, i32>>> = Arc::default();
    let note = Arc::clone(&answered);
    let receiver = TestReceiver::deciding(move |seen: &Seen| {
        let mut answered = note.lock().expect("no holder panics");
        let status = [200, 202, 204][answered.len() % 3];
        answered.insert(seen.key.clone(), status);
        Answer::status(u16::try_from(status).expect("a status"))
    })
    .await;
    let relay = Relay::start(&Config::new(&topic, &database, &receiver));
    topic.send_orders(0..150);
    let done = "select count(*) from oncebox.done";
    eventually("all are done", PATIENCE, async || (database.count(done).await == 150).then_some(())).await;
    let kept = "select o.key, d.status, d.at between o.created_at - interval '1 second' and now() as is_near
                  from oncebox.outbox as o join oncebox.done as d using (cursor, record_offset, event_index, generation, day)";
    let rows = database.query(kept, &[]).await;
    assert!(rows.iter().all(|row| row.get::<_, bool>("is_near")));
    let kept: HashMap<String, i32> = rows.iter().map(|row| (row.get("key"), row.get("status"))).collect();
    assert_eq!(kept, *answered.lock().expect("no holder panics"));
    drop(relay);
}
