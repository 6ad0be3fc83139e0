-- Say that a process is there, and hear how many others run each of its workflows. Called by outbox::fleet::beat, every
-- second. $1 process, $2 its workflows, $3 seconds after which a silent one counts as gone. Index: primary key; a row per
-- process. Rows of processes long gone are removed on the way.
with here as (
    insert into oncebox.process (id, workflows, seen_at)
    values ($1, $2, clock_timestamp())
        on conflict (id) do update set workflows = excluded.workflows, seen_at = excluded.seen_at
),
gone as (
    delete from oncebox.process as p where p.seen_at < clock_timestamp() - interval '10 minutes' and p.id <> $1
)
select w.id, count(*) as others
  from oncebox.process as p
 cross join unnest(p.workflows) as w (id)
 where p.id <> $1 and p.seen_at > clock_timestamp() - make_interval(secs => $3) and w.id = any($2)
 group by w.id;
