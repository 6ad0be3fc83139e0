-- Give every event of one waiting record a life of its own: it has more events than may start together, and a claim must
-- not cover what does not start. Called by outbox::claim::spread. $1 cursor, $2 delivery epoch, $3 claimed_to as known,
-- $4 whether order is kept. Index: the outbox partitions' primary keys.
-- The rows hang on the cursor's move, which fails when another process has taken the delivery. Not for the events of a lane:
-- only the first of them can be sent, so they are claimed as they are.
with seen as materialized (
    select o.record_offset, o.generation, o.lane
      from oncebox.outbox as o
     where o.cursor = $1 and o.record_offset >= $3
       and o.generation = (select generation from oncebox.cursor where id = $1) and not o.delayed
     order by o.record_offset
     limit 1
),
moved as (
    update oncebox.cursor as c
       set claimed_to = seen.record_offset + 1
      from seen
     where c.id = $1 and c.delivery_epoch = $2 and c.claimed_to = $3 and c.next_offset > seen.record_offset
       and (seen.lane is null or not $4)
 returning c.claimed_to, c.workflow, seen.record_offset, seen.generation
),
spread as (
    insert into oncebox.retry
           (cursor, record_offset, event_index, generation, day, workflow, state, sends, counted, fence, due, in_doubt,
            stopped, event_at)
    select o.cursor, o.record_offset, o.event_index, o.generation, o.day, moved.workflow, 'available', 0, 0, 0,
           clock_timestamp(), false, (select w.stopped from oncebox.workflow as w where w.id = moved.workflow),
           coalesce(to_timestamp(o.source_at / 1000.0), o.created_at)
      from moved
      join oncebox.outbox as o
        on o.cursor = $1 and o.record_offset = moved.record_offset and o.generation = moved.generation
       and not o.delayed
        on conflict do nothing
)
select claimed_to, false as in_lane from moved
 union all
select null, true from seen where seen.lane is not null and $4;
