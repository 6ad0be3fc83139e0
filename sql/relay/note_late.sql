-- Note on dead letters that their endpoint did answer 2xx after all, so that nobody replays them blindly. Called by
-- outbox::settle::note_late. $1 cursors, $2 offsets, $3 indexes, $4 generations. Index: primary key. Written once.
update oncebox.dead_letter as d
   set late_success_at = clock_timestamp()
  from unnest($1, $2, $3, $4) as late (cursor, record_offset, event_index, generation)
 where d.cursor = late.cursor and d.record_offset = late.record_offset
   and d.event_index = late.event_index and d.generation = late.generation and d.late_success_at is null;
