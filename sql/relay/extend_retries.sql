-- Keep the leases of retries whose request or settlement is still under way. Called by outbox::claim::extend_retries.
-- $1 cursors, $2 offsets, $3 indexes, $4 generations, $5 fences, $6 lease seconds. Index: primary key.
-- Locked in the order of the key, like every writer of several retry rows. The fence keeps a stale holder out.
with held as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation
      from oncebox.retry as r
      join unnest($1, $2, $3, $4, $5) as mine (cursor, record_offset, event_index, generation, fence)
        on mine.cursor = r.cursor and mine.record_offset = r.record_offset
       and mine.event_index = r.event_index and mine.generation = r.generation
     where r.state = 'active' and r.fence = mine.fence
     order by 1, 2, 3, 4
       for update of r
)
update oncebox.retry as r
   set lease_until = clock_timestamp() + make_interval(secs => $6),
       due = clock_timestamp() + make_interval(secs => $6)
  from held
 where r.cursor = held.cursor and r.record_offset = held.record_offset
   and r.event_index = held.event_index and r.generation = held.generation
returning r.cursor, r.record_offset, r.event_index, r.generation;
