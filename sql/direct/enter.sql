-- Read a cursor without the outbox from now on. Called by outbox::direct::enter, last statement: the first ones have taken
-- the delivery, and all that was claimed is in retry or done. $1 cursor. Index: primary keys.
-- Events that waited for their first attempt, or for their turn, go to retry as available: this path keeps no order. The owner's epoch rises: whoever still appends is
-- fenced.
with waiting as (
    insert into oncebox.retry
           (cursor, record_offset, event_index, generation, day, workflow, state, sends, counted, fence, due, in_doubt,
            stopped, event_at, lane)
    select o.cursor, o.record_offset, o.event_index, o.generation, o.day, c.workflow,
           'available', 0, 0, 0, clock_timestamp(), false,
           (select w.stopped from oncebox.workflow as w where w.id = c.workflow),
           coalesce(to_timestamp(o.source_at / 1000.0), o.created_at), o.lane
      from oncebox.cursor as c
      join oncebox.outbox as o
        on o.cursor = c.id and o.record_offset >= c.claimed_to and o.record_offset < c.next_offset
       and o.generation = c.generation and not o.delayed
     where c.id = $1
       and not exists (
           select 1 from oncebox.done as d
            where d.cursor = o.cursor and d.record_offset = o.record_offset and d.event_index = o.event_index
              and d.generation = o.generation and d.day = o.day)
        on conflict do nothing
),
let_go as (
    update oncebox.retry as r
       set state = case when r.due > clock_timestamp() then 'scheduled' else 'available' end, held = null,
           due = greatest(r.due, clock_timestamp())
     where r.cursor = $1 and r.lane is not null and r.held = 'order'
),
freed as (
    update oncebox.delivery as d
       set owner = null, lease_until = null, settled_to = c.next_offset, ordered = false
      from oncebox.cursor as c
     where d.cursor = $1 and c.id = d.cursor
)
update oncebox.cursor as c
   set direct = true, claimed_to = c.next_offset, delivery_epoch = 0,
       mark_era = greatest(c.mark_era + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint),
       timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8),
       owner_epoch = greatest(c.owner_epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)
 where c.id = $1
returning c.id;
