-- Claim first attempts that waited in the outbox: the next events of one cursor, whole records, in offset order.
-- Called by outbox::claim::waiting. $1 cursor, $2 delivery epoch, $3 claimed_to as known, $4 most events, $5 most bytes.
-- The rows hang on the cursor's move, which fails when another process has taken the delivery. claimed_to moves to what
-- this snapshot saw, never to a newer next_offset; a last record that the limit may have cut stays for the next claim,
-- and so does what comes after $5 bytes. What was cancelled is left out; a claim that looked before it was does not move. Events with a delay are in retry since they were stored.
-- standing: whether the claim is where the caller believes. cut: whether the limit was reached. Index: the outbox
-- partitions' primary keys, in order, read once and no further than the limit.
with seen as materialized (
    select next_offset, generation, topic, partition, cancels, delivery_epoch = $2 and claimed_to = $3 as standing
      from oncebox.cursor where id = $1
),
waiting as materialized (
    select o.record_offset, o.event_index, o.generation, o.day, o.key, o.event_type, o.content_type, o.traceparent,
           o.source_at, (extract(epoch from o.created_at) * 1000000)::bigint as stored_at, o.lane, o.body
      from oncebox.outbox as o
     where o.cursor = $1 and o.record_offset >= $3 and o.generation = (select generation from seen) and not o.delayed
       and not exists (
           select 1 from oncebox.cancel as x
            where x.cursor = o.cursor and x.record_offset = o.record_offset and x.event_index = o.event_index
              and x.generation = o.generation)
     order by o.record_offset, o.event_index
     limit $4
),
weighed as (
    select w.record_offset, sum(sum(octet_length(w.body))) over (order by w.record_offset) - sum(octet_length(w.body))
           as before
      from waiting as w group by w.record_offset
),
reach as materialized (
    select (select count(*) from waiting) = $4 as cut,
           coalesce(
               (select min(w.record_offset) from weighed as w where w.before >= $5),
               case when (select count(*) from waiting) = $4 then (select max(w.record_offset) from waiting as w)
                    else (select next_offset from seen) end) as upto
),
moved as (
    update oncebox.cursor as c
       set claimed_to = reach.upto
      from reach
     where c.id = $1 and c.delivery_epoch = $2 and c.claimed_to = $3 and reach.upto > $3
       and c.cancels = (select cancels from seen)
 returning c.claimed_to
)
select seen.standing, reach.cut, seen.topic, seen.partition, moved.claimed_to, w.record_offset, w.event_index,
       w.generation, w.day, w.key, w.event_type, w.content_type, w.traceparent, w.source_at,
       w.stored_at, w.lane, w.body
  from seen
 cross join reach
  left join moved on true
  left join waiting as w on w.record_offset < moved.claimed_to
 order by w.record_offset, w.event_index;
