-- Take the delivery of one cursor, if it is free. Called by outbox::delivery::take, first statement of a transaction.
-- $1 cursor, $2 process, $3 lease seconds. Index: primary keys.
-- A process may take its own anew: one that it does not know it holds, or no longer trusts its knowledge of.
-- Cursor before delivery, as everywhere. The cursor's copy of the epoch changes with it, so that an append that waits
-- for this row finds itself fenced from claiming. The epoch is never below the clock: it cannot come back.
with held as materialized (
    select c.id, d.timeline as former_timeline
      from oncebox.cursor as c
      join oncebox.delivery as d on d.cursor = c.id
     where c.id = $1
       for update of c
),
taken as (
    update oncebox.delivery as d
       set owner = $2,
           epoch = greatest(d.epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint),
           lease_until = clock_timestamp() + make_interval(secs => $3),
           timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
      from held
     where d.cursor = held.id and (d.owner is null or d.owner = $2 or d.lease_until < clock_timestamp())
 returning d.cursor, d.epoch, d.settled_to, d.timeline, held.former_timeline
)
update oncebox.cursor as c
   set delivery_epoch = taken.epoch
  from taken
 where c.id = taken.cursor
returning taken.epoch, taken.settled_to, c.claimed_to, c.next_offset, taken.timeline,
          taken.former_timeline is distinct from taken.timeline and taken.former_timeline is not null as failed_over,
          c.topic, c.partition;
