-- Lanes in which something waits. Called by outbox::lane::put_beside, twice a second, for a workflow with order and a delay: its events
-- go to retry as they are stored. $1 cursors. Index: retry_lane.
select distinct r.cursor, r.lane
  from oncebox.retry as r
 where r.cursor = any($1) and r.lane is not null and r.held = 'order'
 limit 10000;
