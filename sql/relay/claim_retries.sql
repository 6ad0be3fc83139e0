-- Lease events that are due again, and those whose lease ran out. Called by outbox::claim::retries.
-- $1 workflow, $2 process, $3 lease seconds, $4 limit, $5 whether what is in doubt is tried again,
-- $6 the cursors whose delivery this process holds, where order is kept; null: any. Index: retry_due.
-- Locks end with this statement, the lease guards the request. due becomes the lease's end, so that an expired lease is
-- found by the same search. Fence, sends and counted change before anything is sent. A row whose event is done already
-- (a late answer) is removed instead. age: since the first attempt, without the time for which the workflow was stopped. late:
-- since it was due.
-- The fence never falls and is never below the clock. The clock that bounds the search is a query of its own: asked anew for
-- each row, it could not be part of the index search, and whoever looks would pass through the whole backlog. offset 0 keeps the look into done a search for each row: as a join it
-- reads a whole day while nobody has counted that day's rows.
-- The statement itself is the function of this name, in migrations/0008_by_block.sql: planned once per connection.
select cursor, record_offset, event_index, generation, day, sends, counted, fence, age, late, expired, in_doubt,
       topic, partition, key, event_type, content_type, traceparent, source_at, stored_at, lane, body
  from oncebox.claim_retries($1, $2, $3, $4, $5, $6);
