-- Say that a process is there and what it has under way, and hear who else is. Called by outbox::fleet::beat, every second.
-- $1 process, $2 its workflows, $3 seconds after which a silent one counts as gone, $4 requests under way per workflow,
-- $5 those of them that are first attempts of stored events. Index: primary key; a row per process.
-- Answers how many others run each workflow of $2, and, without an id, how many there are. Rows of processes long gone are
-- removed on the way.
with here as (
    insert into oncebox.process (id, workflows, seen_at, under_way, firsts)
    values ($1, $2, clock_timestamp(), $4, $5)
        on conflict (id) do update set workflows = excluded.workflows, seen_at = excluded.seen_at,
                                       under_way = excluded.under_way, firsts = excluded.firsts
),
gone as (
    delete from oncebox.process as p where p.seen_at < clock_timestamp() - interval '10 minutes' and p.id <> $1
),
others as materialized (
    select p.id, p.workflows
      from oncebox.process as p
     where p.id <> $1 and p.seen_at > clock_timestamp() - make_interval(secs => $3)
)
select w.id as workflow, count(*) as others
  from others as o
 cross join unnest(o.workflows) as w (id)
 where w.id = any($2)
 group by w.id
 union all
select null, count(*) from others;
