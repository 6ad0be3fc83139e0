-- Events that are stored already, of records that will be read again. Called by outbox::direct::spilled_ahead on
-- assignment, after the cursors were taken: no one else stores any from then on. $1 cursors. Index: primary key.
select s.cursor, s.record_offset, s.event_index
  from oncebox.cursor as c
  join oncebox.spilled as s
    on s.cursor = c.id and s.record_offset >= c.next_offset and s.generation = c.generation
 where c.id = any($1);
