-- The events of one record, whichever workflow made them. Called by operate::search.
-- $1 topic, $2 partition, $3 offset, $4 workflow or null. Index: primary keys; cursors are few.
select e.cursor, e.record_offset, e.event_index, e.generation, e.workflow, e.key, e.event_type, e.created_at, e.topic, e.partition,
       e.state, e.sends, e.held, e.in_doubt, e.due, e.first_attempt_at
  from oncebox.cursor as c
  join oncebox.event as e on e.cursor = c.id and e.record_offset = $3
 where c.topic = $1 and c.partition = $2 and ($4::text is null or c.workflow = $4)
 order by e.cursor, e.event_index, e.generation
 limit 1000;
