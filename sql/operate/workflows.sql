-- Workflows and where they stand, for people. Called by operate::workflows::read. $1 one of them, or null.
-- Counters and bounded index look-ups only, as in sql/observe/workflow_gauges.sql: nothing is counted beyond 10,001.
-- Index: primary keys, delivery_workflow, retry_state, retry_due, retry_age, dead_letter_workflow, dead_letter_blocked.
select w.id, w.state, w.reason, w.halted, w.paused, w.draining, w.changed_at, w.changed_by, c.document,
       processes.is_run, processes.is_read, processes.is_sent,
       sums.waiting, sums.waiting_bytes, sums.completed, sums.cancelled, sums.discarded,
       (select coalesce(sum(f.firsts), 0)
          from oncebox.process as p
         cross join unnest(p.workflows, p.firsts) as f (workflow, firsts)
         where f.workflow = w.id and p.seen_at > clock_timestamp() - interval '5 seconds')::bigint as firsts,
       (select count(*) from (select 1 from oncebox.retry as r
                               where r.workflow = w.id and r.state = 'retryable' limit 10001) as few) as retryable,
       (select count(*) from (select 1 from oncebox.retry as r
                               where r.workflow = w.id and r.state = 'active' limit 10001) as few) as active,
       (select count(*) from (select 1 from oncebox.retry as r
                               where r.workflow = w.id and r.state = 'available' limit 10001) as few) as available,
       (select count(*) from (select 1 from oncebox.retry as r
                               where r.workflow = w.id and r.state = 'scheduled' limit 10001) as few) as scheduled,
       (select count(*) from (select 1 from oncebox.retry as r
                               where r.workflow = w.id and r.state = 'pending' limit 10001) as few) as pending,
       (select count(*) from (select 1 from oncebox.retry as r
                               where r.workflow = w.id and r.state = 'pending' and r.held = 'in_doubt' limit 10001) as few)
           as held,
       (select count(*) from (select 1 from oncebox.dead_letter as d where d.workflow = w.id limit 10001) as few) as letters,
       (select count(*) from (select 1 from oncebox.dead_letter as d
                               where d.workflow = w.id and d.blocks limit 10001) as few) as blocked,
       (select extract(epoch from clock_timestamp() - r.due)::float8
          from oncebox.retry as r
         where r.workflow = w.id and r.state <> 'pending' and r.state <> 'active' and r.due < (select clock_timestamp())
         order by r.due limit 1) as retry_lag,
       (select extract(epoch from clock_timestamp() - r.event_at)::float8
          from oncebox.retry as r where r.workflow = w.id order by r.event_at limit 1) as retry_age,
       (select max(extract(epoch from clock_timestamp()) - coalesce(o.source_at / 1000.0, extract(epoch from o.created_at)))::float8
          from oncebox.delivery as d
          join oncebox.cursor as k on k.id = d.cursor
         cross join lateral (
               select b.source_at, b.created_at
                 from oncebox.outbox as b
                where b.cursor = d.cursor and b.record_offset >= d.settled_to and b.generation = k.generation
                order by b.record_offset, b.event_index
                limit 1) as o
         where d.workflow = w.id and d.settled_to < k.next_offset and not k.direct
           and k.appended > d.completed + d.cancelled + d.discarded + d.suppressed) as first_age
  from oncebox.workflow as w
  left join oncebox.configuration as c on c.version = w.version
 cross join lateral (
       select coalesce(sum(k.appended - d.completed - d.cancelled - d.discarded - d.suppressed), 0)::bigint as waiting,
              coalesce(sum(k.appended_bytes - d.settled_bytes), 0)::bigint as waiting_bytes,
              coalesce(sum(d.completed), 0)::bigint as completed,
              coalesce(sum(d.cancelled), 0)::bigint as cancelled,
              coalesce(sum(d.discarded), 0)::bigint as discarded
         from oncebox.delivery as d
         join oncebox.cursor as k on k.id = d.cursor
        where d.workflow = w.id) as sums
 cross join lateral (
       select count(*) > 0 as is_run, coalesce(bool_or(p.reads), false) as is_read, coalesce(bool_or(p.sends), false) as is_sent
         from oncebox.process as p
        where w.id = any(p.workflows) and p.seen_at > clock_timestamp() - interval '10 seconds') as processes
 where w.renamed_to is null and ($1::text is null or w.id = $1)
 order by w.id;
