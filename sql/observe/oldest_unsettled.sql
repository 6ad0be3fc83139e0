-- The age of the oldest event that waits for its first attempt to be settled. Called by outbox::gauges::read.
-- $1 workflow. Per cursor one step into the outbox's primary key, from settled_to on. On the direct path such events are in
-- Kafka.
select max(extract(epoch from clock_timestamp()) - coalesce(o.source_at / 1000.0, extract(epoch from o.created_at)))
           ::float8 as age
  from oncebox.delivery as d
  join oncebox.cursor as c on c.id = d.cursor
 cross join lateral (
       select b.source_at, b.created_at
         from oncebox.outbox as b
        where b.cursor = d.cursor and b.record_offset >= d.settled_to and b.generation = c.generation
        order by b.record_offset, b.event_index
        limit 1) as o
 where d.workflow = $1 and d.settled_to < c.next_offset and not c.direct
   and c.appended > d.completed + d.cancelled + d.discarded + d.suppressed;
