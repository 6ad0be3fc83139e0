-- Remember the keys that callers over HTTP gave, or find who has them. Called by outbox::submit.
-- $1 workflows, $2 fingerprints of the keys, $3 digests of the requests, $4 cursors, $5 offsets, $6 seconds for which a key is remembered.
-- Those that are missing from the answer are remembered now. Two requests with one key wait for each other on its row; rows are taken in
-- order. Index: primary key.
with wanted as materialized (
    select w.workflow, w.fingerprint, w.digest, w.cursor, w.record_offset, w.seconds
      from unnest($1, $2, $3, $4, $5, $6) as w (workflow, fingerprint, digest, cursor, record_offset, seconds)
),
taken as (
    insert into oncebox.seen as s (workflow, fingerprint, cursor, record_offset, event_index, expires_at, digest)
    select w.workflow, w.fingerprint, w.cursor, w.record_offset, 0, clock_timestamp() + make_interval(secs => w.seconds), w.digest
      from wanted as w
     order by w.workflow, w.fingerprint
        on conflict (workflow, fingerprint) do update
       set cursor = case when s.expires_at <= clock_timestamp() then excluded.cursor else s.cursor end,
           record_offset = case when s.expires_at <= clock_timestamp() then excluded.record_offset else s.record_offset end,
           digest = case when s.expires_at <= clock_timestamp() then excluded.digest else s.digest end,
           expires_at = case when s.expires_at <= clock_timestamp() then excluded.expires_at else s.expires_at end
 returning s.workflow, s.fingerprint, s.cursor, s.record_offset, s.digest
)
select w.cursor, w.record_offset, t.cursor as known_cursor, t.record_offset as known_offset, t.digest = w.digest as is_same
  from taken as t
  join wanted as w on w.workflow = t.workflow and w.fingerprint = t.fingerprint
 where (t.cursor, t.record_offset) <> (w.cursor, w.record_offset);
