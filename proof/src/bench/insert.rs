//! What Postgres spends on the payload alone: the same rows, a thousand to an insert, into a table like that of a day, and nothing else.

use std::time::{Duration, Instant};

use super::meter::server_cpu_seconds;
use super::stand::Stand;

const ROWS: i64 = 1_000;

/// Microseconds of Postgres' CPU for each row, over a while. Needs rows in the outbox to copy.
pub async fn cpu_per_row(stand: &Stand, length: Duration) -> anyhow::Result<f64> {
    stand.client.batch_execute(include_str!("insert.sql")).await?;
    let sample =
        stand.client.query("select key, event_type, content_type, source_at, body from bench_sample", &[]).await?;
    anyhow::ensure!(i64::try_from(sample.len())? == ROWS, "too few rows in the outbox to copy");
    let texts = |column: usize| sample.iter().map(|row| row.get::<_, String>(column)).collect::<Vec<_>>();
    let (keys, types, contents) = (texts(0), texts(1), texts(2));
    let times: Vec<i64> = sample.iter().map(|row| row.get(3)).collect();
    let bodies: Vec<Vec<u8>> = sample.iter().map(|row| row.get(4)).collect();
    let insert = stand
        .client
        .prepare(
            "insert into bench_rows
                    (cursor, record_offset, event_index, generation, day, key, event_type, content_type, source_at,
                     created_at, config_version, body)
             select 7, a.record_offset, 0, 0, current_date, a.key, a.event_type, a.content_type, a.source_at,
                    clock_timestamp(), 1, a.body
               from (select unnest($1::int8[]) as record_offset, unnest($2::text[]) as key, unnest($3::text[]) as event_type,
                            unnest($4::text[]) as content_type, unnest($5::int8[]) as source_at,
                            unnest($6::bytea[]) as body) as a",
        )
        .await?;
    let postmaster = stand.postgres.postmaster();
    let spent = || server_cpu_seconds(postmaster);
    let (began, before, mut rows) = (Instant::now(), spent(), 0);
    while began.elapsed() < length {
        let offsets: Vec<i64> = (rows..rows + ROWS).collect();
        stand.client.execute(&insert, &[&offsets, &keys, &types, &contents, &times, &bodies]).await?;
        rows += ROWS;
    }
    Ok((spent() - before) * 1e6 / rows as f64)
}
