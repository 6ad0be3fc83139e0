-- Write down deliveries of first attempts that this process made in time and nobody else has written down: the common case of
-- settle_completed.sql. Called by outbox::settle::completed, in batches. An event that has ended already is an error, and so is one of
-- the deliveries that is not this process's any more: nothing is written then, and the other statement is sent instead.
-- blocks of 64 offsets: $1 cursors, $2 blocks, $3 indexes, $4 generations, $5 days, $6 which of them; $7 their status, $8 process,
-- $9 the cursors once each, $10 events of each, $11 body bytes of each, $12 the epoch of each. Blocks come sorted.
-- Held: by this process, under this epoch, on the server that it was taken from. After a failover an event may be stored anew,
-- under another day than its sender knows. Index: primary keys. Delivery rows are
-- locked in cursor order.
-- The statement itself is a function, in migrations/0014_alike.sql: planned once per connection.
select written from oncebox.settle_held($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);
