-- Have what is left of a workflow delivered, or not, because it is to be made dead letters. Called by outbox::left::decide.
-- $1 workflow, $2 whether, $3 who, $4 what was decided. Index: primary key. The change and who made it are one statement. A pause or a
-- suspension that it was removed with is over when it is drained.
with changed as (
    update oncebox.workflow
       set draining = $2,
           state = case when $2 and state in ('paused', 'suspended') then 'running' else state end,
           reason = case when $2 and state in ('paused', 'suspended') then null else reason end,
           changed_by = $3, changed_at = clock_timestamp()
     where id = $1
 returning id
),
audited as (
    insert into oncebox.audit (who, action, workflow, detail)
    select $3, $4, changed.id, '' from changed
)
select id from changed;
