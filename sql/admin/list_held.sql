-- Undelivered events that have a life of their own, oldest first. Called by outbox::resolve::list.
-- $1 workflow, $2 state or null, $3 limit. Index: retry_state, retry_age.
select r.cursor, r.record_offset, r.event_index, r.generation, r.state, r.held, r.in_doubt, r.sends, r.due,
       r.first_attempt_at, c.topic, c.partition, o.key
  from oncebox.retry as r
  join oncebox.cursor as c on c.id = r.cursor
  join oncebox.outbox as o
    on o.cursor = r.cursor and o.record_offset = r.record_offset and o.event_index = r.event_index
   and o.generation = r.generation and o.day = r.day
 where r.workflow = $1 and ($2::text is null or r.state = $2)
 order by r.event_at
 limit $3;
