-- Read a cursor without the outbox from now on; or, where more waits than one transaction should move, get nearer to that.
-- Called by outbox::direct::enter, last statement, again and again until it answers true: the first ones have taken the delivery,
-- and all that was claimed is in retry or done. $1 cursor, $2 how many events to move at most: more than one record can make.
-- Index: primary keys, retry_lane.
-- Events that waited for their first attempt, or for their turn, go to retry as available: this path keeps no order. Until all
-- have, the delivery is kept for nobody, so that none is claimed in between; should this process die, its lease ends. With the
-- last the owner's epoch rises: whoever still appends is fenced.
with span as materialized (
    select c.id, c.workflow, c.generation, c.claimed_to, c.next_offset,
           coalesce(
               (select o.record_offset
                  from oncebox.outbox as o
                 where o.cursor = c.id and o.record_offset >= c.claimed_to and o.record_offset < c.next_offset
                   and o.generation = c.generation
                 order by o.record_offset, o.event_index
                offset $2
                 limit 1),
               c.next_offset) as upto
      from oncebox.cursor as c
     where c.id = $1
),
turns as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation
      from oncebox.retry as r
     where r.cursor = $1 and r.lane is not null and r.held = 'order'
     limit $2
),
step as materialized (
    select s.id, s.upto, s.upto = s.next_offset and (select count(*) from turns) < $2 as is_last from span as s
),
waiting as (
    insert into oncebox.retry
           (cursor, record_offset, event_index, generation, day, workflow, state, sends, counted, fence, due, in_doubt,
            stopped, event_at, lane)
    select o.cursor, o.record_offset, o.event_index, o.generation, o.day, s.workflow,
           'available', 0, 0, 0, clock_timestamp(), false,
           (select w.stopped from oncebox.workflow as w where w.id = s.workflow),
           coalesce(to_timestamp(o.source_at / 1000.0), o.created_at), o.lane
      from span as s
      join oncebox.outbox as o
        on o.cursor = s.id and o.record_offset >= s.claimed_to and o.record_offset < s.upto
       and o.generation = s.generation and not o.delayed
     where not exists (
           select 1 from oncebox.ended as d
            where d.cursor = o.cursor and d.block = o.record_offset >> 6 and d.event_index = o.event_index
              and d.generation = o.generation and d.day = o.day and oncebox.has(d.bits, o.record_offset))
        on conflict do nothing
),
let_go as (
    update oncebox.retry as r
       set state = case when r.due > clock_timestamp() then 'scheduled' else 'available' end, held = null,
           due = greatest(r.due, clock_timestamp())
      from turns as t
     where r.cursor = t.cursor and r.record_offset = t.record_offset and r.event_index = t.event_index
       and r.generation = t.generation
),
freed as (
    update oncebox.delivery as d
       set owner = case when s.is_last then null else '00000000-0000-0000-0000-000000000000'::uuid end,
           lease_until = case when s.is_last then null else clock_timestamp() + interval '10 seconds' end,
           settled_to = s.upto, ordered = false
      from step as s
     where d.cursor = s.id
)
update oncebox.cursor as c
   set direct = s.is_last, claimed_to = s.upto, delivery_epoch = 0,
       direct_since = case when s.is_last then s.upto end,
       mark_era = greatest(c.mark_era + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint),
       timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8),
       owner_epoch = case when s.is_last
                          then greatest(c.owner_epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)
                          else c.owner_epoch end
  from step as s
 where c.id = s.id
returning s.is_last;
