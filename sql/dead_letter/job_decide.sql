-- Pause, resume or cancel a replay. Called by dead_letter::job::decide. $1 id, $2 the new state, $3 states it may come from, $4 who.
-- One statement: the change and who made it. Index: primary key.
with changed as (
    update oncebox.replay as j
       set state = $2, owner = null, lease_until = null,
           finished_at = case when $2 = 'cancelled' then clock_timestamp() end
     where j.id = $1 and j.state = any($3)
 returning j.id, j.workflow
),
audited as (
    insert into oncebox.audit (who, action, workflow, detail)
    select $4, 'replay ' || $2, changed.workflow, changed.id::text from changed
)
select id from changed;
