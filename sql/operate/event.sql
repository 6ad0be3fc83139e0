-- One event, whole, as far as it is stored. Called by operate::events. $1 cursor, $2 offset, $3 index, $4 generation.
-- A body goes before what is known of its end: then the event has no key any more, and is shown all the same.
-- Index: primary keys.
select c.workflow, c.topic, c.partition, c.direct, o.day is not null as is_stored, o.key, o.event_type, o.content_type, o.traceparent,
       o.source_at, o.created_at, o.body,
       case when d.cursor is not null then d.state
            when r.cursor is not null then r.state
            when o.day is null then null
            when $2 < c.claimed_to then 'active'
            else 'available' end as state,
       case when d.cursor is not null then d.sends else coalesce(r.sends, 0) end as sends,
       d.status, d.at as ended_at, m.letter, r.held, coalesce(r.in_doubt, false) as in_doubt, r.due, r.first_attempt_at,
       r.fence, r.lease_until,
       d.cursor is null and exists (select 1 from oncebox.cancel as x
                where x.cursor = $1 and x.record_offset = $2 and x.event_index = $3 and x.generation = $4) as cancel_requested,
       exists (select 1 from oncebox.dead_letter as l
                where l.cursor = $1 and l.record_offset = $2 and l.event_index = $3 and l.generation = $4) as is_letter,
       (select json_agg(json_build_object(
                   'send', a.send, 'fence', a.fence, 'at', a.at, 'outcome', a.outcome, 'status', a.status, 'error', a.error,
                   'answer', encode(a.answer, 'base64'), 'millis', a.millis) order by a.send)
          from oncebox.attempt as a
         where a.cursor = $1 and a.record_offset = $2 and a.event_index = $3 and a.generation = $4) as attempts
  from oncebox.cursor as c
  left join oncebox.outbox as o
    on o.cursor = c.id and o.record_offset = $2 and o.event_index = $3 and o.generation = $4
  left join oncebox.done as d
    on d.cursor = c.id and d.block = $2 >> 6 and d.record_offset = $2 and d.event_index = $3 and d.generation = $4
  left join oncebox.remark as m
    on m.cursor = c.id and m.record_offset = $2 and m.event_index = $3 and m.generation = $4
  left join oncebox.retry as r
    on r.cursor = c.id and r.record_offset = $2 and r.event_index = $3 and r.generation = $4
 where c.id = $1
 limit 1;
