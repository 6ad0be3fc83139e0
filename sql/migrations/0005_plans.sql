-- Plans that are kept. Run by outbox::migrate in one transaction; `oncebox.` is replaced by the configured schema.
--
-- What looks into tables that have a part for each day is planned anew for each of its parts, every time it is sent: with a month
-- of history, planning costs many times what it does. As functions these are planned once per connection. A kept plan must be
-- right however the tables grow, so that it may only search: nothing is read whole, and nothing is joined but row by row.

create function oncebox.claim_retries(
    text, uuid, double precision, bigint, boolean, bigint[]
) returns table (
    cursor bigint, record_offset bigint, event_index integer, generation integer, day date, sends integer, counted integer,
    fence bigint, age double precision, late double precision, expired boolean, in_doubt boolean, topic text, partition integer, key text, event_type text,
    content_type text, traceparent text, source_at bigint, stored_at bigint, lane bigint, body bytea
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
begin
    return query
with due as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation, r.day, r.due, r.state = 'active' as expired
      from oncebox.retry as r
     where r.workflow = $1 and r.state <> 'pending' and r.due <= (select clock_timestamp())
       and ($5 or not (r.in_doubt or r.state = 'active'))
       and ($6::bigint[] is null or r.cursor = any($6))
     order by r.due
     limit $4
       for update skip locked
),
paused as materialized (
    select stopped from oncebox.workflow where id = $1
),
finished as materialized (
    select due.cursor, due.record_offset, due.event_index, due.generation
      from due
     where exists (
           select 1 from oncebox.done as d
            where d.cursor = due.cursor and d.record_offset = due.record_offset
              and d.event_index = due.event_index and d.generation = due.generation and d.day = due.day
            offset 0)
),
removed as (
    delete from oncebox.retry as r
     using finished as f
     where r.cursor = f.cursor and r.record_offset = f.record_offset
       and r.event_index = f.event_index and r.generation = f.generation
),
lost as (
    insert into oncebox.attempt
           (cursor, record_offset, event_index, generation, day, send, fence, at, outcome, error, millis)
    select r.cursor, r.record_offset, r.event_index, r.generation, r.day, r.sends, r.fence, r.lease_until, 'in_doubt',
           'the relay that held the event stopped before it settled it', 0
      from oncebox.retry as r
      join due on due.cursor = r.cursor and due.record_offset = r.record_offset
              and due.event_index = r.event_index and due.generation = r.generation and due.expired
        on conflict do nothing
),
claimed as (
    update oncebox.retry as r
       set state = 'active',
           leased_by = $2,
           lease_until = clock_timestamp() + make_interval(secs => $3),
           due = clock_timestamp() + make_interval(secs => $3),
           sends = r.sends + 1,
           counted = r.counted + 1,
           fence = greatest(r.fence + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint),
           first_attempt_at = coalesce(r.first_attempt_at, clock_timestamp()),
           stopped = case when r.first_attempt_at is null then paused.stopped else r.stopped end,
           in_doubt = r.in_doubt or due.expired
      from due
     cross join paused
     where r.cursor = due.cursor and r.record_offset = due.record_offset
       and r.event_index = due.event_index and r.generation = due.generation
       and not exists (
           select 1 from finished as f
            where f.cursor = r.cursor and f.record_offset = r.record_offset
              and f.event_index = r.event_index and f.generation = r.generation)
 returning r.cursor, r.record_offset, r.event_index, r.generation, r.day, r.sends, r.counted, r.fence, r.in_doubt,
           extract(epoch from clock_timestamp() - r.first_attempt_at - (paused.stopped - r.stopped))::float8 as age,
           extract(epoch from clock_timestamp() - due.due)::float8 as late, due.expired
)
select claimed.cursor, claimed.record_offset, claimed.event_index, claimed.generation, claimed.day, claimed.sends,
       claimed.counted, claimed.fence, claimed.age, claimed.late, claimed.expired, claimed.in_doubt, c.topic, c.partition, o.key,
       o.event_type, o.content_type, o.traceparent, o.source_at,
       (extract(epoch from o.created_at) * 1000000)::bigint as stored_at, o.lane, o.body
  from claimed
  join oncebox.cursor as c on c.id = claimed.cursor
  join oncebox.outbox as o
    on o.cursor = claimed.cursor and o.record_offset = claimed.record_offset and o.event_index = claimed.event_index
   and o.generation = claimed.generation and o.day = claimed.day;
end
$$;

create function oncebox.open_lanes(
    bigint[], bigint[], bigint[], uuid
) returns table (
    cursor bigint, lane bigint, opened bigint
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
begin
    return query
with asked as materialized (
    select l.cursor, l.lane, d.cursor is not null as mine
      from unnest($1, $2, $3) as l (cursor, lane, epoch)
      left join oncebox.delivery as d
        on d.cursor = l.cursor and d.epoch = l.epoch and d.owner = $4
       and d.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
),
first as materialized (
    select a.cursor, a.lane, a.mine, r.record_offset, r.event_index, r.generation, r.state, r.held,
           exists (select 1 from oncebox.dead_letter as b
                    where b.cursor = a.cursor and b.lane = a.lane and b.blocks) as shut,
           exists (select 1 from oncebox.done as d
                    where d.cursor = a.cursor and d.record_offset = r.record_offset and d.event_index = r.event_index
                      and d.generation = r.generation and d.day = r.day) as over,
           exists (select 1 from oncebox.retry as g
                    where g.cursor = a.cursor and g.lane = a.lane and g.state <> 'pending') as under_way
      from asked as a
      left join lateral (
           select q.record_offset, q.event_index, q.generation, q.day, q.state, q.held
             from oncebox.retry as q
            where q.cursor = a.cursor and q.lane = a.lane
            order by q.record_offset, q.event_index, q.generation desc
            limit 1) as r on true
),
cleared as (
    delete from oncebox.retry as r
     using first as f
     where r.cursor = f.cursor and r.record_offset = f.record_offset and r.event_index = f.event_index
       and r.generation = f.generation and f.mine and f.over and r.state <> 'active'
),
opened as (
    update oncebox.retry as r
       set state = case when r.due > clock_timestamp() then 'scheduled' else 'available' end, held = null,
           due = greatest(r.due, clock_timestamp())
      from first as f
     where r.cursor = f.cursor and r.record_offset = f.record_offset and r.event_index = f.event_index
       and r.generation = f.generation and f.mine and not f.over and not f.under_way
       and f.state = 'pending' and f.held = 'order' and not f.shut
       and r.state = 'pending' and r.held = 'order'
 returning r.cursor
)
select f.cursor, f.lane, (select count(*) from opened) as opened
  from first as f
 where f.record_offset is not null or f.shut or not f.mine;
end
$$;

create function oncebox.settle_retried(
    bigint[], bigint[], integer[], integer[], date[], integer[], integer[], integer[], bigint[], bigint[]
) returns table (
    cursor bigint, record_offset bigint, event_index integer, generation integer, fence bigint
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
begin
    return query
with durable as materialized (
    select set_config('synchronous_commit',
                      case current_setting('synchronous_commit') when 'off' then 'on'
                           else current_setting('synchronous_commit') end, true) as level
),
locked as materialized (
    select d.cursor from oncebox.delivery as d where d.cursor = any($9) order by d.cursor for update
),
held as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation, r.fence,
           r.fence = a.fence or r.state <> 'active' as ends
      from oncebox.retry as r
      join unnest($1, $2, $3, $4, $10) as a (cursor, record_offset, event_index, generation, fence)
        on r.cursor = a.cursor and r.record_offset = a.record_offset
       and r.event_index = a.event_index and r.generation = a.generation
     cross join (select count(*) from locked) as after_deliveries
     order by r.cursor, r.record_offset, r.event_index, r.generation
       for update of r
),
cleared as (
    delete from oncebox.retry as r
     using held
     where r.cursor = held.cursor and r.record_offset = held.record_offset
       and r.event_index = held.event_index and r.generation = held.generation and held.ends
),
finished as (
    insert into oncebox.done
           (cursor, record_offset, event_index, generation, day, state, sends, status, body_bytes, at)
    select a.cursor, a.record_offset, a.event_index, a.generation, a.day, 'completed', a.sends, a.status, a.bytes,
           clock_timestamp()
      from unnest($1, $2, $3, $4, $5, $6, $7, $8)
           as a (cursor, record_offset, event_index, generation, day, sends, status, bytes)
     cross join durable
        on conflict do nothing
 returning cursor, record_offset, event_index, generation, body_bytes
),
counted as (
    update oncebox.delivery as d
       set completed = d.completed + sums.events, settled_bytes = d.settled_bytes + sums.bytes
      from (select finished.cursor, count(*) as events, sum(finished.body_bytes)::bigint as bytes
              from finished join locked on locked.cursor = finished.cursor group by finished.cursor) as sums
     where d.cursor = sums.cursor
)
select f.cursor, f.record_offset, f.event_index, f.generation, null::bigint as fence from finished as f
 union all
select h.cursor, h.record_offset, h.event_index, h.generation, h.fence from held as h;
end
$$;

create function oncebox.end_in_doubt(
    text, bigint, boolean
) returns table (
    ended bigint, expired bigint
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
begin
    return query
with durable as materialized (
    select set_config('synchronous_commit',
                      case current_setting('synchronous_commit') when 'off' then 'on'
                           else current_setting('synchronous_commit') end, true) as level
),
candidates as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation
      from oncebox.retry as r
     where r.workflow = $1 and r.state <> 'pending' and r.due <= (select clock_timestamp())
       and (r.in_doubt or r.state = 'active')
     order by r.due
     limit $2
),
locked as materialized (
    select d.cursor from oncebox.delivery as d
     where d.cursor in (select cursor from candidates)
     order by d.cursor
       for update
),
due as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation, r.day, r.sends, r.fence, r.lease_until,
           r.state = 'active' as expired
      from locked
      join candidates as c on c.cursor = locked.cursor
      join oncebox.retry as r
        on r.cursor = c.cursor and r.record_offset = c.record_offset
       and r.event_index = c.event_index and r.generation = c.generation
     cross join durable
     where r.state <> 'pending' and r.due <= (select clock_timestamp()) and (r.in_doubt or r.state = 'active')
       for update of r skip locked
),
cleared as (
    delete from oncebox.retry as r
     using due
     where r.cursor = due.cursor and r.record_offset = due.record_offset
       and r.event_index = due.event_index and r.generation = due.generation
),
ended as (
    insert into oncebox.done (cursor, record_offset, event_index, generation, day, state, sends, body_bytes, at)
    select due.cursor, due.record_offset, due.event_index, due.generation, due.day, 'discarded', due.sends,
           octet_length(o.body), clock_timestamp()
      from due
      join oncebox.outbox as o
        on o.cursor = due.cursor and o.record_offset = due.record_offset and o.event_index = due.event_index
       and o.generation = due.generation and o.day = due.day
        on conflict do nothing
 returning cursor, record_offset, event_index, generation, day, body_bytes
),
written as (
    insert into oncebox.dead_letter
           (cursor, record_offset, event_index, generation, day, workflow, topic, partition, reason, key, event_type,
            content_type, traceparent, source_at, config_version, body, sends, fence, attempts, first_attempt_at,
            last_attempt_at, lane, blocks)
    select due.cursor, due.record_offset, due.event_index, due.generation, due.day, $1, c.topic, c.partition, 'in_doubt',
           o.key, o.event_type, o.content_type, o.traceparent, o.source_at, o.config_version, o.body, due.sends,
           due.fence, coalesce(tried.attempts, '[]'), tried.first_at, tried.last_at, o.lane,
           o.lane is not null and $3
      from ended
      join due on due.cursor = ended.cursor and due.record_offset = ended.record_offset
              and due.event_index = ended.event_index and due.generation = ended.generation
      join oncebox.cursor as c on c.id = due.cursor
      join oncebox.outbox as o
        on o.cursor = due.cursor and o.record_offset = due.record_offset and o.event_index = due.event_index
       and o.generation = due.generation and o.day = due.day
     cross join lateral (
           select json_agg(json_build_object(
                      'send', t.send, 'fence', t.fence, 'at', t.at, 'outcome', t.outcome, 'status', t.status,
                      'error', t.error, 'answer', encode(t.answer, 'base64'), 'millis', t.millis) order by t.send)
                      as attempts,
                  min(t.at) as first_at, max(t.at) as last_at
             from (select a.send, a.fence, a.at, a.outcome, a.status, a.error, a.answer, a.millis
                     from oncebox.attempt as a
                    where a.cursor = due.cursor and a.record_offset = due.record_offset
                      and a.event_index = due.event_index and a.generation = due.generation and a.day = due.day
                    union all
                   select due.sends, due.fence, due.lease_until, 'in_doubt', null, 'the relay that held the event '
                          || 'stopped before it settled it', null, 0
                    where due.expired) as t) as tried
),
counted as (
    update oncebox.delivery as d
       set discarded = d.discarded + sums.events, settled_bytes = d.settled_bytes + sums.bytes
      from (select cursor, count(*) as events, sum(body_bytes)::bigint as bytes from ended group by cursor) as sums
     where d.cursor = sums.cursor
)
select (select count(*) from ended) as ended, (select count(*) from due where expired) as expired;
end
$$;

update oncebox.schema_version set version = 5;
