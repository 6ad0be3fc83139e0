-- Decide whether a workflow sends. Called by outbox::workflow::set.
-- $1 workflow, $2 new state, $3 reason, $4 who, $5 states it may come from. Index: primary key.
-- A second process that finds the same fault changes nothing: the first reason stands.
update oncebox.workflow
   set state = $2, reason = $3, changed_by = $4, changed_at = clock_timestamp()
 where id = $1 and state = any($5)
returning id;
