-- Let events wait for their turn in their lane. Called by outbox::lane::put_behind, possibly again after a lost reply.
-- $1 cursors, $2 offsets, $3 indexes, $4 generations, $5 days, $6 source times, $7 lanes, $8 delivery epochs,
-- $9 process. None of them was sent.
-- Only under the current delivery owner and epoch, checked on the locked row, as in sql/relay/fail_first.sql, and on the server
-- that the delivery was taken from: after a failover that lost commits what is before these events in their lane may be unknown
-- here, and whoever looks would let them go first. Whether the lane is free by now is seen when it is looked at next. Index:
-- primary keys.
with locked as materialized (
    select d.cursor, d.epoch, d.owner, d.workflow, d.timeline
      from oncebox.delivery as d where d.cursor = any($1) order by d.cursor for update
)
insert into oncebox.retry
       (cursor, record_offset, event_index, generation, day, workflow, state, sends, counted, fence, due, in_doubt, held,
        stopped, event_at, lane)
select e.cursor, e.record_offset, e.event_index, e.generation, e.day, locked.workflow, 'pending', 0, 0, e.epoch,
       clock_timestamp(), false, 'order', (select w.stopped from oncebox.workflow as w where w.id = locked.workflow),
       coalesce(to_timestamp(e.event_at / 1000.0), clock_timestamp()), e.lane
  from unnest($1, $2, $3, $4, $5, $6, $7, $8)
       as e (cursor, record_offset, event_index, generation, day, event_at, lane, epoch)
  join locked on locked.cursor = e.cursor and locked.epoch = e.epoch and locked.owner = $9
   and locked.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
    on conflict (cursor, record_offset, event_index, generation)
    do update set lane = excluded.lane
returning cursor, record_offset, event_index, generation;
