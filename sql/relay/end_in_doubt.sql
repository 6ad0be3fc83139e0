-- Events of an at-most-once workflow whose only attempt is in doubt become dead letters: they are never sent again. Called
-- by outbox::claim::retries before it claims. $1 workflow, $2 limit, $3 whether lanes stay shut. Index: retry_in_doubt, primary keys.
-- These are events of a lost owner, and retries whose lease ran out; an attempt that ended in doubt is parked as it is
-- settled. One statement: done, dead letter, retry and counters change together or not at all. Deliveries are locked in
-- cursor order before retries, like everywhere. An event that is done already (a late answer) only loses its row here.
-- The statement itself is the function of this name, in migrations/0008_by_block.sql: planned once per connection.
select ended, expired
  from oncebox.end_in_doubt($1, $2, $3);
