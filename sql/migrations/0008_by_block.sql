-- The functions of before, by the block. Run by outbox::migrate in one transaction; `oncebox.` is replaced by the configured schema.

drop function oncebox.settle_new(
    bigint[], bigint[], integer[], integer[], date[], integer[], integer[], uuid, bigint[], bigint[], bigint[]);
drop function oncebox.settle_new(
    bigint[], bigint[], integer[], integer[], date[], integer[], integer[], uuid, bigint[], bigint[], bigint[], bigint[]);

create function oncebox.settle_new(
    bigint[], bigint[], integer[], integer[], date[], bigint[], integer, uuid, bigint[], bigint[], bigint[], bigint[]
) returns table (written bigint)
language plpgsql set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    done bigint;
    clashes bigint;
begin
    with durable as materialized (
        select set_config('synchronous_commit',
                          case current_setting('synchronous_commit') when 'off' then 'on'
                               else current_setting('synchronous_commit') end, true) as level,
               (extract(epoch from clock_timestamp()) * 1000)::bigint * 1000 + $7 as at
    ),
    locked as materialized (
        select d.cursor, d.epoch,
               d.owner = $8 and d.lease_until > clock_timestamp()
               and d.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) as held
          from oncebox.delivery as d where d.cursor = any($9) order by d.cursor for update
    ),
    fenced as materialized (
        select count(*) from unnest($9, $12) as mine (cursor, epoch)
         where not exists (select 1 from locked as l where l.cursor = mine.cursor and l.epoch = mine.epoch and l.held)
    ),
    marked as (
        insert into oncebox.ended as b (cursor, block, event_index, generation, day, bits, again, tried, tried_at)
        select a.cursor, a.block, a.event_index, a.generation, a.day, a.bits, 0, a.bits, durable.at
          from (select unnest($1) as cursor, unnest($2) as block, unnest($3) as event_index, unnest($4) as generation,
                       unnest($5) as day, unnest($6) as bits) as a
         cross join durable
         where (select fenced.count from fenced) = 0
            on conflict (cursor, block, event_index, generation, day) do update
           set bits = b.bits | excluded.bits, again = b.bits & excluded.bits,
               tried = case when oncebox.is_one_time(b.tried_at, excluded.tried_at) then b.tried | excluded.tried
                            else excluded.tried end,
               tried_at = case when oncebox.is_one_time(b.tried_at, excluded.tried_at) then b.tried_at
                               else excluded.tried_at end,
               tried_before = case when oncebox.is_one_time(b.tried_at, excluded.tried_at) or b.tried = 0 then b.tried_before
                                   else b.tried_before || b.tried || b.tried_at end
     returning again
    ),
    counted as (
        update oncebox.delivery as d
           set completed = d.completed + sums.events, settled_bytes = d.settled_bytes + sums.bytes
          from unnest($9, $10, $11) as sums (cursor, events, bytes)
          join locked on locked.cursor = sums.cursor
         where d.cursor = sums.cursor and (select fenced.count from fenced) = 0
    )
    select (select count(*) from locked), (select count(*) from marked where again <> 0)
      into done, clashes
      from fenced
     where fenced.count = 0;
    if clashes > 0 then
        raise unique_violation using message = 'an event has ended before';
    end if;
    if done is not null then
        return query select done;
    end if;
end
$$;

create or replace function oncebox.claim_retries(
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
           select 1 from oncebox.ended as d
            where d.cursor = due.cursor and d.block = due.record_offset >> 6
              and d.event_index = due.event_index and d.generation = due.generation and d.day = due.day
              and oncebox.has(d.bits, due.record_offset)
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

create or replace function oncebox.open_lanes(
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
           exists (select 1 from oncebox.ended as d
                    where d.cursor = a.cursor and d.block = r.record_offset >> 6 and d.event_index = r.event_index
                      and d.generation = r.generation and d.day = r.day
                      and oncebox.has(d.bits, r.record_offset)) as over,
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

create or replace function oncebox.settle_retried(
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
ending as materialized (
    select a.cursor, a.record_offset, a.event_index, a.generation, stored.day, a.sends, a.status, a.bytes
      from unnest($1, $2, $3, $4, $6, $7, $8)
           as a (cursor, record_offset, event_index, generation, sends, status, bytes)
     cross join durable
     cross join (select count(*) from locked) as after_deliveries
     cross join lateral (
           select found.day
             from (select r.day from oncebox.retry as r
                    where r.cursor = a.cursor and r.record_offset = a.record_offset and r.event_index = a.event_index
                      and r.generation = a.generation
                    union all
                   select o.day from oncebox.outbox as o
                    where o.cursor = a.cursor and o.record_offset = a.record_offset and o.event_index = a.event_index
                      and o.generation = a.generation) as found
            limit 1) as stored
),
finished as materialized (
    select f.cursor, f.record_offset, f.event_index, f.generation
      from oncebox.finish(
               array(select e.cursor from ending as e), array(select e.record_offset from ending as e),
               array(select e.event_index from ending as e), array(select e.generation from ending as e),
               array(select e.day from ending as e), 'completed', array(select e.sends from ending as e),
               array(select e.status from ending as e)) as f
),
counted as (
    update oncebox.delivery as d
       set completed = d.completed + sums.events, settled_bytes = d.settled_bytes + sums.bytes
      from (select f.cursor, count(*) as events, sum(e.bytes)::bigint as bytes
              from finished as f
              join ending as e on e.cursor = f.cursor and e.record_offset = f.record_offset
                              and e.event_index = f.event_index and e.generation = f.generation
             group by f.cursor) as sums
     where d.cursor = sums.cursor
)
select f.cursor, f.record_offset, f.event_index, f.generation, null::bigint as fence from finished as f
 union all
select h.cursor, h.record_offset, h.event_index, h.generation, h.fence from held as h;
end
$$;

create or replace function oncebox.end_in_doubt(
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
ending as materialized (
    select due.cursor, due.record_offset, due.event_index, due.generation, due.day, due.sends,
           octet_length(o.body) as body_bytes
      from due
      join oncebox.outbox as o
        on o.cursor = due.cursor and o.record_offset = due.record_offset and o.event_index = due.event_index
       and o.generation = due.generation and o.day = due.day
),
finished as materialized (
    select f.cursor, f.record_offset, f.event_index, f.generation, e.body_bytes
      from oncebox.finish(
               array(select e.cursor from ending as e), array(select e.record_offset from ending as e),
               array(select e.event_index from ending as e), array(select e.generation from ending as e),
               array(select e.day from ending as e), 'discarded', array(select e.sends from ending as e),
               array(select null::integer from ending as e)) as f
      join ending as e on e.cursor = f.cursor and e.record_offset = f.record_offset
                      and e.event_index = f.event_index and e.generation = f.generation
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
      from finished as f
      join due on due.cursor = f.cursor and due.record_offset = f.record_offset
              and due.event_index = f.event_index and due.generation = f.generation
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
      from (select cursor, count(*) as events, sum(body_bytes)::bigint as bytes from finished group by cursor) as sums
     where d.cursor = sums.cursor
)
select (select count(*) from finished) as ended, (select count(*) from due where expired) as expired;
end
$$;

update oncebox.schema_version set version = 8, oldest_binary = 8;
