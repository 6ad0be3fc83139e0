-- Write down deliveries of first attempts that nobody else has written down: the common case of settle_completed.sql. Called by
-- outbox::settle::completed, in batches. A place that is done already is an error, and the other statement is sent instead.
-- $1 cursors, $2 offsets, $3 indexes, $4 generations, $5 days, $6 statuses, $7 body bytes, $8 process,
-- $9 the cursors once each, $10 events of each, $11 body bytes of each. Rows come sorted by place.
-- The answer has the epoch of each delivery that this process still holds: what was sent under another is late. Without a look
-- for conflicts a row costs half. Index: primary keys. Delivery rows are locked in cursor order.
-- The statement itself is the function of this name, in migrations/0003_searches.sql: planned once per connection.
select cursor, epoch from oncebox.settle_new($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);
