-- What was decided about workflows. Called by outbox::workflow::states, every second.
-- $1 workflow ids. Index: primary key.
select id, state, reason, halted from oncebox.workflow where id = any($1);
