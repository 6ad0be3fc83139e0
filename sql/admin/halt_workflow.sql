-- Stop reading a workflow's records. Called by outbox::workflow::halt. $1 workflow, $2 reason. Index: primary key.
-- The first reason stands.
update oncebox.workflow set halted = $2 where id = $1 and halted is null
returning id;
