-- Keep what failed attempts saw. Called by outbox::settle before the verdict is written; again is harmless.
-- $1 cursors, $2 offsets, $3 indexes, $4 generations, $5 days, $6 send numbers, $7 fences, $8 seconds ago, $9 outcomes,
-- $10 statuses, $11 errors, $12 answers, $13 milliseconds. Index: primary key.
insert into oncebox.attempt
       (cursor, record_offset, event_index, generation, day, send, fence, at, outcome, status, error, answer, millis)
select a.cursor, a.record_offset, a.event_index, a.generation, a.day, a.send, a.fence,
       clock_timestamp() - make_interval(secs => a.ago), a.outcome, a.status, a.error, a.answer, a.millis
  from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
       as a (cursor, record_offset, event_index, generation, day, send, fence, ago, outcome, status, error, answer,
             millis)
    on conflict do nothing;
