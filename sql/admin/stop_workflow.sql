-- Stop sending. Called by outbox::workflow::stop. $1 workflow, $2 the new state, $3 reason, $4 who. Index: primary key.
-- A second process that finds the same fault changes nothing: the first reason stands. The change and who made it are one
-- statement. A pause gives way to a suspension, which tells more.
with changed as (
    update oncebox.workflow
       set state = $2, reason = $3, changed_by = $4, changed_at = clock_timestamp()
     where id = $1 and (state = 'running' or (state = 'paused' and $2 = 'suspended'))
 returning id
),
audited as (
    insert into oncebox.audit (who, action, workflow, detail)
    select $4, $2, changed.id, $3 from changed
)
select id from changed;
