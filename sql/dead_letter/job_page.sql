-- The next dead letters of a replay, by place: those of one ordering key come in its order. Called by dead_letter::replayer.
-- $1 workflow or null, $2 reason or null, $3 from, $4 to, $5 cursor, $6 offset, $7 index, $8 generation behind which it goes on, $9 limit.
-- Index: primary key.
select d.cursor, d.record_offset, d.event_index, d.generation
  from oncebox.dead_letter as d
 where (d.cursor, d.record_offset, d.event_index, d.generation) > ($5, $6, $7, $8)
   and ($1::text is null or d.workflow = $1) and ($2::text is null or d.reason = $2)
   and ($3::timestamptz is null or d.created_at >= $3) and d.created_at < $4
 order by d.cursor, d.record_offset, d.event_index, d.generation
 limit $9;
