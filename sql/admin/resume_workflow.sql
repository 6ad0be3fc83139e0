-- Send and read again. Called by outbox::workflow::resume. $1 workflow, $2 who. Index: primary key.
-- One word of an operator ends a pause, a suspension and a halt; the change and who made it are one statement. A pause by the
-- configuration is not an operator's to end: whether there is one is answered besides. What is being drained heeds none.
with changed as (
    update oncebox.workflow
       set state = case when state in ('paused', 'suspended') then 'running' else state end,
           reason = case when state in ('paused', 'suspended') then null else reason end,
           halted = null, changed_by = $2, changed_at = clock_timestamp()
     where id = $1 and (state in ('paused', 'suspended') or halted is not null)
 returning id
),
audited as (
    insert into oncebox.audit (who, action, workflow, detail)
    select $2, 'resumed', changed.id, '' from changed
)
select exists (select 1 from changed) as changed, w.paused and not w.draining as paused
  from oncebox.workflow as w
 where w.id = $1;
