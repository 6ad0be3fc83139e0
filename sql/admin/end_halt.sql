-- Read a workflow's records again. Called by outbox::workflow::end_halt. $1 workflow. Index: primary key.
update oncebox.workflow set halted = null where id = $1 and halted is not null
returning id;
