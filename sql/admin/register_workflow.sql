-- Make a workflow and its configuration known. Called by outbox::workflow::register at start.
-- $1 workflow, $2 version, $3 document, $4 whether the configuration pauses it. Index: primary keys. An operator's word
-- outlives restarts: state and halt stay. The version is that of the process that started last.
with known as (
    insert into oncebox.workflow as w (id, paused, stopped_at, version)
    values ($1, $4, case when $4 then clock_timestamp() end, $2)
        on conflict (id) do update set paused = excluded.paused, version = excluded.version, draining = false
     where w.paused <> excluded.paused or w.version is distinct from excluded.version or w.draining
)
insert into oncebox.configuration (workflow, version, document)
values ($1, $2, $3)
    on conflict do nothing;
