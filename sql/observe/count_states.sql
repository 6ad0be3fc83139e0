-- The events of one workflow that were tried and are not done, by state, and its keys that are blocked. Called by
-- outbox::gauges::count, only where there are too many for workflow_gauges.sql, and at a pace that its own time sets.
-- $1 workflow. Index: retry_state, dead_letter_blocked.
select r.state, count(*) as events
  from oncebox.retry as r
 where r.workflow = $1
 group by r.state
 union all
select 'blocked', count(*)
  from oncebox.dead_letter as b
 where b.workflow = $1 and b.blocks;
