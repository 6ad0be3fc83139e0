-- Give everything that a workflow has to one with another id. Called by outbox::workflow::rename at start, again and again:
-- it happens once. $1 the former id, $2 the id. Index: cursor_topic, delivery_workflow, retry_due, dead_letter_workflow,
-- primary keys.
-- Only while the new one has read nothing of its own; a pause of it that was decided before its first start stands. Whoever still reads under the former id is fenced by the owner's
-- epoch; what it has sent is settled as usual, because rows are named by their place. Cursor before delivery, as everywhere.
with former as materialized (
    select w.id, w.state, w.reason, w.halted, w.paused, w.stopped_at, w.stopped
      from oncebox.workflow as w
     where w.id = $1 and w.renamed_to is null
       and not exists (select 1 from oncebox.cursor as c where c.workflow = $2)
       for update
),
known as (
    insert into oncebox.workflow as w (id, state, reason, halted, paused, changed_by, stopped_at, stopped)
    select $2, former.state, former.reason, former.halted, former.paused, 'oncebox', former.stopped_at, former.stopped
      from former
        on conflict (id) do update
       set state = case w.state when 'running' then excluded.state else w.state end,
           reason = case w.state when 'running' then excluded.reason else w.reason end,
           halted = excluded.halted, stopped_at = coalesce(excluded.stopped_at, w.stopped_at), stopped = excluded.stopped
),
left_behind as (
    update oncebox.workflow as w
       set state = 'removed', reason = 'renamed to ' || $2, renamed_to = $2, changed_at = clock_timestamp()
      from former
     where w.id = former.id
),
locked as materialized (
    select c.id from oncebox.cursor as c join former on c.workflow = former.id order by c.id for update of c
),
cursors as (
    update oncebox.cursor as c
       set workflow = $2, owner = null,
           owner_epoch = greatest(c.owner_epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)
      from locked
     where c.id = locked.id
 returning c.id
),
deliveries as (
    update oncebox.delivery as d set workflow = $2 from cursors where d.cursor = cursors.id
),
retries as (
    update oncebox.retry as r set workflow = $2 from former where r.workflow = former.id
),
letters as (
    update oncebox.dead_letter as d set workflow = $2 from former where d.workflow = former.id
),
changes as (
    update oncebox.seen as s set workflow = $2 from former where s.workflow = former.id
),
keys as (
    update oncebox.unique_key as k set workflow = $2 from former where k.workflow = former.id
),
keyed as (
    update oncebox.unique_event as e set workflow = $2 from former where e.workflow = former.id
),
cancels as (
    update oncebox.cancel as x set workflow = $2 from former where x.workflow = former.id
),
noted as (
    insert into oncebox.audit (who, action, workflow, detail)
    select 'oncebox', 'workflow renamed', $2, 'formerly ' || former.id from former
)
select count(*) as partitions from cursors having exists (select 1 from former);
