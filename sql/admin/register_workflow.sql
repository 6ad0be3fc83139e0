-- Make a workflow and its configuration known. Called by outbox::workflow::register at start.
-- $1 workflow, $2 version, $3 document. Index: primary keys. Existing rows stay: an operator's word outlives restarts.
with known as (
    insert into oncebox.workflow (id) values ($1) on conflict do nothing
)
insert into oncebox.configuration (workflow, version, document)
values ($1, $2, $3)
    on conflict do nothing;
