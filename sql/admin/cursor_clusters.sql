-- The clusters that a workflow's cursors are of. Called by outbox::cursor::clusters: for validate --against, and when a
-- workflow starts on a topic. $1 workflow. Index: one_cursor_per_incarnation.
select distinct c.cluster
  from oncebox.cursor as c
 where c.workflow = $1
 order by c.cluster;
