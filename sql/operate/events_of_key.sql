-- The events of a workflow with one idempotency key. Called by operate::search. $1 workflow, $2 key.
-- No index has keys, which would cost every event: this reads all that is stored of the workflow, and may be cut off by the limit on
-- statements. For operators, who ask seldom.
select e.cursor, e.record_offset, e.event_index, e.generation, e.workflow, e.key, e.event_type, e.created_at, e.topic, e.partition,
       e.state, e.sends, e.held, e.in_doubt, e.due, e.first_attempt_at
  from oncebox.cursor as c
  join oncebox.event as e on e.cursor = c.id
 where c.workflow = $1 and e.key = $2
 order by e.cursor, e.record_offset, e.event_index, e.generation
 limit 1000;
