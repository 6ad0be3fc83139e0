-- What the gauges of one workflow are filled from. Called by outbox::gauges::read, every few seconds, never per scrape.
-- $1 workflow. Counters and bounded index look-ups only: no table is scanned, and nothing is counted beyond 10,001.
-- Index: retry_state, retry_due, retry_age.
select coalesce(sum(c.appended - d.completed - d.cancelled - d.discarded - d.suppressed), 0)::bigint as waiting,
       coalesce(sum(c.appended_bytes - d.settled_bytes), 0)::bigint as waiting_bytes,
       coalesce(sum(d.completed), 0)::bigint as completed,
       coalesce(sum(d.cancelled), 0)::bigint as cancelled,
       coalesce(sum(d.discarded), 0)::bigint as discarded,
       (select coalesce(sum(f.firsts), 0)
          from oncebox.process as p
         cross join unnest(p.workflows, p.firsts) as f (workflow, firsts)
         where f.workflow = $1 and p.seen_at > clock_timestamp() - interval '5 seconds')::bigint as firsts,
       (select count(*) from (select 1 from oncebox.retry as r
                               where r.workflow = $1 and r.state = 'retryable' limit 10001) as few) as retryable,
       (select count(*) from (select 1 from oncebox.retry as r
                               where r.workflow = $1 and r.state = 'active' limit 10001) as few) as active,
       (select count(*) from (select 1 from oncebox.retry as r
                               where r.workflow = $1 and r.state = 'available' limit 10001) as few) as available,
       (select count(*) from (select 1 from oncebox.retry as r
                               where r.workflow = $1 and r.state = 'scheduled' limit 10001) as few) as scheduled,
       (select count(*) from (select 1 from oncebox.retry as r
                               where r.workflow = $1 and r.state = 'pending' limit 10001) as few) as pending,
       (select count(*) from (select 1 from oncebox.dead_letter as b
                               where b.workflow = $1 and b.blocks limit 10001) as few) as blocked,
       (select extract(epoch from clock_timestamp() - r.due)::float8
          from oncebox.retry as r
         where r.workflow = $1 and r.state <> 'pending' and r.state <> 'active' and r.due <= (select clock_timestamp())
         order by r.due limit 1) as retry_lag,
       (select extract(epoch from clock_timestamp() - r.event_at)::float8
          from oncebox.retry as r
         where r.workflow = $1 order by r.event_at limit 1) as retry_age
  from oncebox.delivery as d
  join oncebox.cursor as c on c.id = d.cursor
 where d.workflow = $1;
