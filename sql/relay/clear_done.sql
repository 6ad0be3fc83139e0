-- Remove what is left in retry of events that are done: a late answer ended them after a take-over had stored them in doubt. A
-- claim removes those that are due; one that is held for an operator would wait for ever. Called by outbox::settle::clear_done.
-- $1 cursors, $2 offsets, $3 indexes, $4 generations. Index: primary keys.
-- Whether they are is asked here again: after a failover that lost commits the event may not be done any more. One that is being sent
-- stays, until that attempt has ended. Rows are locked by themselves and in order: no other lock is held.
with over as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation
      from oncebox.retry as r
      join unnest($1, $2, $3, $4) as late (cursor, record_offset, event_index, generation)
        on r.cursor = late.cursor and r.record_offset = late.record_offset
       and r.event_index = late.event_index and r.generation = late.generation
     where r.state <> 'active'
       and exists (
           select 1 from oncebox.ended as d
            where d.cursor = r.cursor and d.block = r.record_offset >> 6 and oncebox.has(d.bits, r.record_offset)
              and d.event_index = r.event_index and d.generation = r.generation and d.day = r.day
            offset 0)
     order by r.cursor, r.record_offset, r.event_index, r.generation
       for update of r
)
delete from oncebox.retry as r
 using over
 where r.cursor = over.cursor and r.record_offset = over.record_offset
   and r.event_index = over.event_index and r.generation = over.generation;
