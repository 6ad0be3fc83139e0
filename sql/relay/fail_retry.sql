-- Retries that failed wait again. Called by outbox::settle::failed, possibly again after a lost reply.
-- $1 cursors, $2 offsets, $3 indexes, $4 generations, $5 fences, $6 counted, $7 seconds until due, $8 in doubt,
-- $9 why the event is held, or null when it is tried again by itself, $10 requests made so far.
-- Only under the fence it was sent with: a stale holder's failure is ignored and missing from the answer. Index:
-- primary key, locked in its order.
with held as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation, mine.counted, mine.delay, mine.in_doubt,
           mine.held, mine.sends
      from oncebox.retry as r
      join unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
           as mine (cursor, record_offset, event_index, generation, fence, counted, delay, in_doubt, held, sends)
        on mine.cursor = r.cursor and mine.record_offset = r.record_offset
       and mine.event_index = r.event_index and mine.generation = r.generation
     where r.fence = mine.fence
     order by 1, 2, 3, 4
       for update of r
)
update oncebox.retry as r
   set state = case when held.held is null then 'retryable' else 'pending' end, held = held.held,
       leased_by = null, lease_until = null, sends = held.sends, counted = held.counted,
       due = clock_timestamp() + make_interval(secs => held.delay), in_doubt = held.in_doubt
  from held
 where r.cursor = held.cursor and r.record_offset = held.record_offset
   and r.event_index = held.event_index and r.generation = held.generation
returning r.cursor, r.record_offset, r.event_index, r.generation;
