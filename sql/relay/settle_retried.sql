-- Write down deliveries of retries. Called by outbox::settle::retried, in batches, possibly again after a lost reply.
-- $1 cursors, $2 offsets, $3 indexes, $4 generations, $5 days, $6 sends, $7 statuses, $8 body bytes, $9 the cursors once
-- each, $10 fences. Rows come sorted by place.
-- As for first attempts, a 2xx needs only that the event is stored and not terminal. The answer has the places that became done, and
-- the fence of each retry row: what was sent under another fence is late. A row that another attempt holds stays until that
-- one has ended, so that nothing that waits for it overtakes it. Index: primary keys. Delivery rows are locked in cursor
-- order.
-- The statement itself is the function of this name, in migrations/0008_by_block.sql: planned once per connection.
select cursor, record_offset, event_index, generation, fence
  from oncebox.settle_retried($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);
