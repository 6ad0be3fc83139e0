-- First attempts that failed get a retry row. Called by outbox::settle::failed, possibly again after a lost reply.
-- $1 cursors, $2 offsets, $3 indexes, $4 generations, $5 days, $6 delivery epochs, $7 counted, $8 seconds until due,
-- $9 in doubt, $10 process, $11 seconds since the attempt began, $12 event times in ms since 1970,
-- $13 why the event is held, or null when it is tried again by itself, $14 lanes.
-- Only under the current delivery owner and epoch, checked on the locked row: a stale process's failure is ignored and
-- missing from the answer. And only on the server that the delivery was taken from: an event that a failover lost is stored anew,
-- perhaps under another day, and a retry of the lost one would be in its way. An event that is done already needs no retry.
with locked as materialized (
    select d.cursor, d.epoch, d.owner, d.workflow, d.timeline
      from oncebox.delivery as d where d.cursor = any($1) order by d.cursor for update
)
insert into oncebox.retry
       (cursor, record_offset, event_index, generation, day, workflow, state, sends, counted, fence, due, in_doubt,
        held, first_attempt_at, stopped, event_at, lane)
select f.cursor, f.record_offset, f.event_index, f.generation, f.day, locked.workflow,
       case when f.held is null then 'retryable' else 'pending' end, 1, f.counted, f.epoch,
       clock_timestamp() + make_interval(secs => f.delay), f.in_doubt, f.held,
       clock_timestamp() - make_interval(secs => f.ago),
       (select w.stopped from oncebox.workflow as w where w.id = locked.workflow),
       coalesce(to_timestamp(f.event_at / 1000.0), clock_timestamp() - make_interval(secs => f.ago)), f.lane
  from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $11, $12, $13, $14)
       as f (cursor, record_offset, event_index, generation, day, epoch, counted, delay, in_doubt, ago, event_at,
             held, lane)
  join locked on locked.cursor = f.cursor and locked.epoch = f.epoch and locked.owner = $10
   and locked.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
 where not exists (
       select 1 from oncebox.ended as d
        where d.cursor = f.cursor and d.block = f.record_offset >> 6 and oncebox.has(d.bits, f.record_offset)
          and d.event_index = f.event_index and d.generation = f.generation and d.day = f.day)
    on conflict (cursor, record_offset, event_index, generation)
    do update set fence = oncebox.retry.fence where oncebox.retry.fence = excluded.fence
returning cursor, record_offset, event_index, generation;
