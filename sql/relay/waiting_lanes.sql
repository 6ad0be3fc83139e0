-- Lanes in which something waits and nothing was let go. Called by outbox::lane::waiting, twice a second, for a workflow with
-- order and a delay: its events go to retry as they are stored. $1 cursors, $2 limit, $3 and $4 the cursor and lane after which
-- to look: with more than the limit, one look goes on where the last one ended. Index: retry_lane, retry_let_go.
select distinct r.cursor, r.lane
  from oncebox.retry as r
 where r.cursor = any($1) and r.lane is not null and r.held = 'order' and (r.cursor, r.lane) > ($3, $4)
   and not exists (
       select 1 from oncebox.retry as g
        where g.cursor = r.cursor and g.lane = r.lane and g.state <> 'pending')
 order by r.cursor, r.lane
 limit $2;
