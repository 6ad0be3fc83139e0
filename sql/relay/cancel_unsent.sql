-- End events that this process had claimed, not sent, and is asked to cancel. Called by outbox::cancel::end_unsent.
-- $1 cursors, $2 offsets, $3 indexes, $4 generations, $5 days, $6 delivery epochs, $7 body bytes, $8 process.
-- Only under the current delivery owner and epoch, on the server that it was taken from, checked on the locked row. Those in the answer are
-- over, by this or before. Index: primary keys.
with locked as materialized (
    select d.cursor, d.epoch
      from oncebox.delivery as d
     where d.cursor = any($1) and d.owner = $8 and d.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
     order by d.cursor
       for update
),
mine as materialized (
    select m.cursor, m.record_offset, m.event_index, m.generation, m.day, m.bytes
      from unnest($1, $2, $3, $4, $5, $6, $7) as m (cursor, record_offset, event_index, generation, day, epoch, bytes)
      join locked on locked.cursor = m.cursor and locked.epoch = m.epoch
),
ended as materialized (
    select f.cursor, f.record_offset, f.event_index, f.generation
      from (select count(*) from mine) as after_locks
     cross join lateral oncebox.finish(
               array(select m.cursor from mine as m), array(select m.record_offset from mine as m), array(select m.event_index from mine as m),
               array(select m.generation from mine as m), array(select m.day from mine as m), 'cancelled', array(select 0 from mine as m),
               array(select null::integer from mine as m)) as f
),
counted as (
    update oncebox.delivery as d
       set cancelled = d.cancelled + sums.events, settled_bytes = d.settled_bytes + sums.bytes
      from (select m.cursor, count(*) as events, sum(m.bytes)::bigint as bytes
              from mine as m
              join ended as e on e.cursor = m.cursor and e.record_offset = m.record_offset and e.event_index = m.event_index
                             and e.generation = m.generation
             group by m.cursor) as sums
     where d.cursor = sums.cursor
)
select m.cursor, m.record_offset, m.event_index, m.generation from mine as m cross join (select count(*) from ended) as after_ends;
