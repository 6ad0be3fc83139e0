-- Move a cursor back, so that records are read again as a new generation. Called by outbox::rewind, second statement:
-- the first has taken the delivery, and all that it had claimed is in retry or done.
-- $1 cursor, $2 to, $3 reason, $4 action. Index: primary keys.
-- Events that waited for their first attempt go to retry as available: the range can no longer name them. What is read again is on record
-- again, whatever of it is past its retention; where that begins before the first offset of all, that is the first from now on.
-- Whoever takes it next takes it for the first time: records that are read again on somebody's word are not suspected of anything.
with waiting as (
    insert into oncebox.retry
           (cursor, record_offset, event_index, generation, day, workflow, state, sends, counted, fence, due, in_doubt,
            stopped, event_at, lane, held)
    select o.cursor, o.record_offset, o.event_index, o.generation, o.day, c.workflow,
           case when o.lane is null then 'available' else 'pending' end, 0, 0, 0, clock_timestamp(), false,
           (select w.stopped from oncebox.workflow as w where w.id = c.workflow),
           coalesce(to_timestamp(o.source_at / 1000.0), o.created_at), o.lane,
           case when o.lane is not null then 'order' end
      from oncebox.cursor as c
      join oncebox.outbox as o
        on o.cursor = c.id and o.record_offset >= c.claimed_to and o.record_offset < c.next_offset
       and o.generation = c.generation and not o.delayed
     where c.id = $1
        on conflict do nothing
),
noted as (
    insert into oncebox.gap (cursor, from_offset, to_offset, reason, action)
    select c.id, c.next_offset, $2, $3, $4 from oncebox.cursor as c where c.id = $1
),
reread as (
    update oncebox.gone as g set offsets = g.offsets - int8multirange(int8range($2, null)) where g.cursor = $1
),
freed as (
    update oncebox.delivery as d set owner = null, lease_until = null, settled_to = $2 where d.cursor = $1
)
update oncebox.cursor as c
   set next_offset = $2, claimed_to = $2, generation = c.generation + 1000,
       mark_era = greatest(c.mark_era + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint),
       owner_epoch = greatest(c.owner_epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint),
       delivery_epoch = 0,
       taken_offset = null, taken_times = 0, suspect_offset = null, suspect_times = 0,
       start_offset = least(c.start_offset, $2),
       direct_since = case when c.direct then least(coalesce(c.direct_since, c.start_offset), $2) else c.direct_since end
 where c.id = $1
returning c.id;
