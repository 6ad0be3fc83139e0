-- Lanes into which an operator has put something back. Called by outbox::lane::replayed, after a notice and now and then.
-- $1 cursors. Index: retry_replayed.
select distinct r.cursor, r.lane
  from oncebox.retry as r
 where r.cursor = any($1) and r.lane is not null and r.generation % 1000 > 0;
