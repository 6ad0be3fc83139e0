-- Let the next event of each lane go, where nothing is before it, and say which lanes still have any. Called by
-- outbox::lane::open, after something of a lane has ended, and now and then. $1 cursors, $2 lanes, $3 delivery epochs,
-- $4 process. Index: retry_lane, retry_let_go, dead_letter_blocks, primary keys.
-- Only for whoever holds the delivery, on the server that it was taken from: to anybody else a lane is busy. The first
-- that waits is released when it is the first of all that are stored, none of them was let go (a replay may come before one
-- that was), and no dead letter keeps the lane shut. A first that is done
-- already (a late answer) goes. One with a delay is not due before its time.
-- The statement itself is the function of this name, in migrations/0008_by_block.sql: planned once per connection.
select cursor, lane, opened
  from oncebox.open_lanes($1, $2, $3, $4);
