-- Note what somebody changed by hand. Called by outbox::audit::write, mostly within the transaction of the change.
-- $1 who, $2 action, $3 workflow, $4 detail.
insert into oncebox.audit (who, action, workflow, detail) values ($1, $2, $3, $4);
