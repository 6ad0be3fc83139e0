-- Dead letters, newest first. Called by dead_letter::list.
-- $1 workflow or null, $2 reason or null, $3 and $4 from and to when they were written, or null, $5 limit; behind which one the
-- list goes on: $6 when it was written or null, $7 cursor, $8 offset, $9 index, $10 generation.
-- Index: dead_letter_workflow, dead_letter_age.
select d.cursor, d.record_offset, d.event_index, d.generation, d.workflow, d.topic, d.partition, d.reason, d.detail,
       d.key, d.event_type, d.sends, d.created_at, d.blocks
  from oncebox.dead_letter as d
 where ($1::text is null or d.workflow = $1)
   and ($2::text is null or d.reason = $2)
   and ($3::timestamptz is null or d.created_at >= $3)
   and ($4::timestamptz is null or d.created_at < $4)
   and ($6::timestamptz is null or
        (d.created_at, d.cursor, d.record_offset, d.event_index, d.generation) < ($6, $7, $8, $9, $10))
 order by d.created_at desc, d.cursor desc, d.record_offset desc, d.event_index desc, d.generation desc
 limit $5;
