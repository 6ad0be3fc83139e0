-- The events of one that a caller gave over HTTP that have its key: those that operators made of its dead letters may have another. Called by
-- operate::search. $1 cursor, $2 offset, $3 key. Index: primary keys.
select e.cursor, e.record_offset, e.event_index, e.generation, e.workflow, e.key, e.event_type, e.created_at, e.topic, e.partition,
       e.state, e.sends, e.held, e.in_doubt, e.due, e.first_attempt_at
  from oncebox.event as e
 where e.cursor = $1 and e.record_offset = $2 and e.key = $3
 order by e.event_index, e.generation
 limit 1000;
