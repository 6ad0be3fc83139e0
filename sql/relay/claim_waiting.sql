-- Claim first attempts that waited in the outbox: the next events of one cursor, whole records, in offset order.
-- Called by outbox::claim::waiting. $1 cursor, $2 delivery epoch, $3 claimed_to as known, $4 limit.
-- The rows hang on the cursor's move, which fails when another process has taken the delivery. claimed_to moves to what
-- this snapshot saw, never to a newer next_offset. standing: whether the claim is where the caller believes. Index: the outbox partitions' primary keys, in order.
with seen as materialized (
    select next_offset, generation, delivery_epoch = $2 and claimed_to = $3 as standing
      from oncebox.cursor where id = $1
),
waiting as materialized (
    select o.record_offset
      from oncebox.outbox as o
     where o.cursor = $1 and o.record_offset >= $3 and o.generation = (select generation from seen)
     order by o.record_offset, o.event_index
     limit $4
),
reach as (
    select case when count(*) < $4 then (select next_offset from seen) else max(record_offset) + 1 end as upto
      from waiting
),
moved as (
    update oncebox.cursor as c
       set claimed_to = reach.upto
      from reach
     where c.id = $1 and c.delivery_epoch = $2 and c.claimed_to = $3 and reach.upto > $3
 returning c.claimed_to, c.topic, c.partition, c.generation
)
select seen.standing, moved.claimed_to, moved.topic, moved.partition, o.record_offset, o.event_index, o.generation, o.day,
       o.key, o.event_type, o.content_type, o.traceparent, o.source_at, o.body
  from seen
  left join moved on true
  left join oncebox.outbox as o
    on o.cursor = $1 and o.record_offset >= $3 and o.record_offset < moved.claimed_to
   and o.generation = moved.generation
 order by o.record_offset, o.event_index;
