-- Have what is left of a workflow delivered, or not. Called by outbox::left::set_draining.
-- $1 workflow, $2 whether. Index: primary key.
update oncebox.workflow set draining = $2 where id = $1 returning id;
