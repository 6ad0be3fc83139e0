-- Dead letters, newest first. Called by dead_letter::list. $1 workflow or null, $2 limit. Index: dead_letter_workflow.
select d.cursor, d.record_offset, d.event_index, d.generation, d.workflow, d.topic, d.partition, d.reason, d.detail,
       d.key, d.sends, d.created_at
  from oncebox.dead_letter as d
 where $1::text is null or d.workflow = $1
 order by d.created_at desc
 limit $2;
