-- Say that a process is there and what it has under way, and hear who else is. Called by outbox::fleet::beat, every second.
-- $1 process, $2 its workflows, $3 seconds after which a silent one counts as gone, $4 requests under way per workflow,
-- $5 those of them that are first attempts of stored events, $6 whether it sends,
-- $7 whether it reads, $8 the workflows that it takes deliveries of, $9 the guarantee of each workflow. Index: primary key; a row per
-- process.
-- Answers for each workflow of $2 that others run what each of them that sends has under way, those that came first at the front, how
-- many of these came before this one, and whether some only read or only send; without an id the same of all others. One that was silent
-- for two seconds has nothing under way, as far as others are to wait for it: most likely it was killed. Rows of processes long gone are
-- removed on the way.
-- And for each workflow that another process runs at most once where this one does not, or the other way round, a row that clashes: what
-- one of them has sent the other could send again. Whoever may be there counts, as in sql/admin/running_promises.sql. A binary that does
-- not tell its guarantees clashes with nobody here: it was compared when this process started.
with here as (
    insert into oncebox.process (id, workflows, seen_at, under_way, firsts, sends, reads, takes, guarantees)
    values ($1, $2, clock_timestamp(), $4, $5, $6, $7, $8, $9)
        on conflict (id) do update set workflows = excluded.workflows, seen_at = excluded.seen_at,
                                       under_way = excluded.under_way, firsts = excluded.firsts,
                                       sends = excluded.sends, reads = excluded.reads, takes = excluded.takes,
                                       guarantees = excluded.guarantees
 returning id, since
),
gone as (
    delete from oncebox.process as p where p.seen_at < clock_timestamp() - interval '10 minutes' and p.id <> $1
),
others as materialized (
    select p.workflows, case when p.seen_at > clock_timestamp() - interval '2 seconds' then p.under_way end as under_way,
           row_number() over (order by p.since, p.id) as turn, p.sends, p.reads <> p.sends as is_apart,
           (p.since, p.id) < (here.since, here.id) as is_older
      from oncebox.process as p
     cross join here
     where p.id <> $1 and p.seen_at > clock_timestamp() - make_interval(secs => $3)
),
clashing as materialized (
    select distinct mine.workflow
      from unnest($2, $9) as mine (workflow, guarantee)
     cross join oncebox.process as p
     cross join unnest(p.workflows, p.guarantees) as theirs (workflow, guarantee)
     where p.id <> $1 and p.seen_at > clock_timestamp() - interval '10 seconds' and theirs.workflow = mine.workflow
       and (theirs.guarantee = 'at-most-once') <> (mine.guarantee = 'at-most-once')
)
select w.id as workflow,
       coalesce(array_agg(coalesce(w.under_way, 0) order by o.turn) filter (where o.sends), '{}') as under_way,
       count(*) filter (where o.sends and o.is_older) as older, bool_or(o.is_apart) as are_apart, false as clashes
  from others as o
 cross join unnest(o.workflows, o.under_way) as w (id, under_way)
 where w.id = any($2)
 group by w.id
 union all
select null, coalesce(array_agg(0) filter (where o.sends), '{}'), count(*) filter (where o.sends and o.is_older),
       coalesce(bool_or(o.is_apart), false), false
  from others as o
 union all
select c.workflow, '{}', 0, false, true from clashing as c;
