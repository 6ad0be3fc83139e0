-- Have a workflow on record before it ever ran, so that something can be decided about it. Called by outbox::workflow::know.
-- $1 workflow. Index: primary key. It has no version: it is nobody's running configuration.
insert into oncebox.workflow (id) values ($1)
    on conflict do nothing;
