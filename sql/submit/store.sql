-- Store events that came over HTTP. Called by outbox::submit, last of the transaction that took their places.
-- events: $1 cursors, $2 offsets, $3 keys, $4 types, $5 content types, $6 source times, $7 config versions, $8 bodies, $9 lanes,
--         $10 when due, in seconds since 1970 (null: now); as take_unique.sql decided: $11 fates (null: no key), $12 to $15 the event that
--         one waits for
-- $16 cursors once each, $17 where each stands now; of the events again: $18 traceparents, $19 seconds that each waits at the least;
-- for the audit: $20 who gave events, $21 to which workflows, $22 how many.
-- All go to retry at once, each with a life of its own. One that another of the same transaction replaces ends at once. Index: primary keys.
with events as materialized (
    select e.cursor, e.record_offset, e.key, e.event_type, e.content_type, e.source_at, e.config_version, e.body, e.lane, e.fate,
           e.waits_cursor, e.waits_offset, e.waits_index, e.waits_generation,
           greatest(to_timestamp(e.due), clock_timestamp() + make_interval(secs => e.delay)) as due, e.traceparent, c.workflow, oncebox.today() as day
      from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $18, $19)
           as e (cursor, record_offset, key, event_type, content_type, source_at, config_version, body, lane, due, fate,
                 waits_cursor, waits_offset, waits_index, waits_generation, traceparent, delay)
      join oncebox.cursor as c on c.id = e.cursor
),
stored as (
    insert into oncebox.outbox
           (cursor, record_offset, event_index, generation, day, delayed, key, event_type, content_type, traceparent, source_at,
            created_at, config_version, lane, body)
    select e.cursor, e.record_offset, 0, 0, e.day, true, e.key, e.event_type, e.content_type, e.traceparent, e.source_at, clock_timestamp(),
           e.config_version, e.lane, e.body
      from events as e
 returning cursor, record_offset, created_at
),
queued as (
    insert into oncebox.retry
           (cursor, record_offset, event_index, generation, day, workflow, state, sends, counted, fence, due, in_doubt, stopped, event_at,
            lane, held, waits_cursor, waits_offset, waits_index, waits_generation)
    select e.cursor, e.record_offset, 0, 0, e.day, e.workflow,
           case when e.fate = 'waits' or e.lane is not null then 'pending' when e.due > clock_timestamp() then 'scheduled' else 'available' end,
           0, 0, 0, e.due, false, w.stopped, clock_timestamp(), e.lane,
           case when e.fate = 'waits' then 'unique' when e.lane is not null then 'order' end,
           e.waits_cursor, e.waits_offset, e.waits_index, e.waits_generation
      from events as e
      join oncebox.workflow as w on w.id = e.workflow
     where e.fate is distinct from 'cancelled'
 returning cursor, record_offset, state, day
),
noted as (
    insert into oncebox.audit (who, action, workflow, detail)
    select g.who, 'events submitted', g.workflow, g.events || case when g.events = 1 then ' event' else ' events' end
      from unnest($20, $21, $22) as g (who, workflow, events)
),
counted as (
    update oncebox.cursor as c
       set appended = c.appended + sums.events, appended_bytes = c.appended_bytes + sums.bytes
      from (select e.cursor, count(*) as events, sum(octet_length(e.body)) as bytes from events as e group by e.cursor) as sums
     where c.id = sums.cursor
),
locked as materialized (
    select d.cursor from oncebox.delivery as d where d.cursor = any($16) order by d.cursor for update
),
withdrawn as materialized (
    select count(*) as events
      from (select count(*) from locked) as after_deliveries
     cross join lateral oncebox.finish(
               array(select e.cursor from events as e where e.fate = 'cancelled'),
               array(select e.record_offset from events as e where e.fate = 'cancelled'),
               array(select 0 from events as e where e.fate = 'cancelled'),
               array(select 0 from events as e where e.fate = 'cancelled'),
               array(select e.day from events as e where e.fate = 'cancelled'), 'cancelled',
               array(select 0 from events as e where e.fate = 'cancelled'),
               array(select null::integer from events as e where e.fate = 'cancelled')) as f
),
settled as (
    update oncebox.delivery as d
       set settled_to = greatest(d.settled_to, now.next_offset),
           cancelled = d.cancelled + (select count(*) from events as e where e.cursor = d.cursor and e.fate = 'cancelled'),
           settled_bytes = d.settled_bytes + coalesce((select sum(octet_length(e.body)) from events as e
                                                        where e.cursor = d.cursor and e.fate = 'cancelled'), 0)
      from unnest($16, $17) as now (cursor, next_offset)
      join locked on locked.cursor = now.cursor
     where d.cursor = now.cursor
)
select e.cursor, e.record_offset, coalesce(q.state, 'cancelled') as state, case when q.cursor is not null then e.due end as due,
       s.created_at
  from events as e
  join stored as s on s.cursor = e.cursor and s.record_offset = e.record_offset
  left join queued as q on q.cursor = e.cursor and q.record_offset = e.record_offset
 cross join withdrawn;
