//! A session may have `synchronous_commit` off, by its role, its database or its URL: what is appended and what has ended is durable
//! all the same.

use oncebox::outbox::Purpose;
use oncebox::outbox::attempt::Right;
use oncebox::outbox::settle::{self, Completion};
use tokio_postgres::NoTls;

use crate::alike::Columns;
use crate::ends::{Held, held};
use crate::fences::FENCE;
use crate::support::services;

/// What transactions had the setting at as they committed, by the table that they changed: how many, and which settings.
async fn at_commit(held: &Held, table: &str) -> (i64, Vec<String>) {
    let count = held.test.query("select count(*) from oncebox.at_commit where changed = $1", &[&table]).await[0].get(0);
    let rows = held.test.query("select distinct level from oncebox.at_commit where changed = $1", &[&table]).await;
    (count, rows.iter().map(|row| row.get(0)).collect())
}

#[tokio::test]
async fn with_synchronous_commit_off_appends_and_ends_are_durable() {
    let held = held(1, 4).await;
    let plain = &services().database_url;
    let url = format!("{plain}{}options=-c%20synchronous_commit%3Doff", if plain.contains('?') { '&' } else { '?' });
    let database = held.test.opened_at(&url);
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("Postgres answers");
    tokio::spawn(connection);
    // Run as the last thing before the commit is written.
    held.test
        .execute(
            "create table oncebox.at_commit (changed text, level text);
             create function oncebox.note_level() returns trigger language plpgsql as $$
             begin
                 insert into oncebox.at_commit values (tg_table_name, current_setting('synchronous_commit'));
                 return null;
             end
             $$;
             create constraint trigger note_level after update on oncebox.cursor deferrable initially deferred
                for each row execute function oncebox.note_level();
             create constraint trigger note_level after update on oncebox.delivery deferrable initially deferred
                for each row execute function oncebox.note_level()",
        )
        .await;
    let on = vec!["on".to_owned()];

    for (turn, alike) in [(0, true), (1, false)] {
        let mut columns = Columns { process: held.process, source_ats: vec![Some(1)], ..Columns::default() };
        columns.batch((1, FENCE, FENCE), 4 + turn, 5 + turn, &[4 + turn]);
        let moved = match alike {
            true => columns.append_alike(&client, &held.test.schema).await,
            false => columns.append_events(&client, &held.test.schema).await,
        };
        assert_eq!(moved.len(), 1);
        assert_eq!(at_commit(&held, "cursor").await, (turn + 1, on.clone()), "alike: {alike}");
    }

    // Ended for the first time, then in part again, then at a retry.
    let first = held.answer(1, 0, FENCE);
    held.test
        .execute(&format!(
            "insert into oncebox.retry (cursor, record_offset, event_index, generation, day, workflow, state, sends, counted,
                                        fence, due, leased_by, lease_until, in_doubt, event_at)
             select 1, 2, 0, 0, day, 'w', 'active', 2, 2, {FENCE}, now() + interval '1 hour', '{}'::uuid,
                    now() + interval '1 hour', false, now()
               from oncebox.outbox where record_offset = 2",
            held.process
        ))
        .await;
    let retried = Completion { right: Right::Retry { fence: FENCE }, sends: 2, ..held.answer(1, 2, FENCE) };
    let batches = [vec![first.clone()], vec![first, held.answer(1, 1, FENCE)], vec![retried]];
    for (ended, batch) in (1..).zip(batches) {
        settle::completed(&database, held.process, &batch).await.expect("it runs");
        assert_eq!(at_commit(&held, "delivery").await, (ended, on.clone()));
    }

    let session = database.get(Purpose::Settle).await.expect("a connection");
    for client in [&client, &**session] {
        let level: String = client.query_one("show synchronous_commit", &[]).await.expect("it runs").get(0);
        assert_eq!(level, "off", "it is the session's own again");
    }
}
