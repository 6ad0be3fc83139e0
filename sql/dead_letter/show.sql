-- One dead letter, whole. Called by dead_letter::show. $1 cursor, $2 offset, $3 index, $4 generation. Index: primary key.
select d.workflow, d.topic, d.partition, d.reason, d.detail, d.key, d.event_type, d.content_type, d.traceparent,
       d.source_at, d.body, d.record_key, d.record_headers, d.sends, d.attempts, d.first_attempt_at, d.last_attempt_at,
       d.late_success_at, d.created_at, c.cluster, c.topic_id
  from oncebox.dead_letter as d
  join oncebox.cursor as c on c.id = d.cursor
 where d.cursor = $1 and d.record_offset = $2 and d.event_index = $3 and d.generation = $4;
