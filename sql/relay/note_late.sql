-- Note on dead letters that their endpoint did answer 2xx after all, so that nobody replays them blindly. Called by
-- outbox::settle::note_late. $1 cursors, $2 offsets, $3 indexes, $4 generations. Index: primary keys. Written once.
-- Answers those, and the ones that were cancelled or replaced: an answer that changes nothing is to be seen all the same.
with late as materialized (
    select l.cursor, l.record_offset, l.event_index, l.generation
      from unnest($1, $2, $3, $4) as l (cursor, record_offset, event_index, generation)
),
noted as (
    update oncebox.dead_letter as d
       set late_success_at = clock_timestamp()
      from late
     where d.cursor = late.cursor and d.record_offset = late.record_offset
       and d.event_index = late.event_index and d.generation = late.generation and d.late_success_at is null
 returning d.cursor, d.record_offset, d.event_index, d.generation
)
select n.cursor, n.record_offset, n.event_index, n.generation
  from noted as n
 union all
select m.cursor, m.record_offset, m.event_index, m.generation
  from late
  join oncebox.remark as m on m.cursor = late.cursor and m.record_offset = late.record_offset
                          and m.event_index = late.event_index and m.generation = late.generation
 where m.state = 'cancelled';
