-- How long until the next retry of a workflow is due, in seconds; no row when none waits. Called by outbox::claim.
-- $1 workflow, $2 the cursors whose delivery this process holds, where order is kept; null: any. Index: retry_due.
select extract(epoch from r.due - clock_timestamp())::float8 as seconds
  from oncebox.retry as r
 where r.workflow = $1 and r.state <> 'pending' and ($2::bigint[] is null or r.cursor = any($2))
 order by r.due
 limit 1;
