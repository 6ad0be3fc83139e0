-- One place that says which day it is. Run by outbox::migrate in one transaction; `oncebox.` is replaced by the configured schema.

-- The day that events are filed under when they are stored. Written into the statements that ask, so that it costs nothing; and a
-- run under faults can let it be midnight at the worst moment.
create function oncebox.today() returns date
language sql volatile as $$
    select timezone('utc', clock_timestamp())::date
$$;

create or replace function oncebox.make_partitions(days_ahead integer) returns integer
language plpgsql as $$
declare
    parent text;
    partition_day date;
    partition_name text;
    made integer := 0;
begin
    if not pg_try_advisory_xact_lock(hashtext('oncebox.make_partitions')) then
        return 0;
    end if;
    for partition_day in
        select (oncebox.today() + step) from generate_series(-1, days_ahead) as step
    loop
        foreach parent in array array['outbox', 'done', 'attempt', 'ledger'] loop
            partition_name := parent || '_' || to_char(partition_day, 'YYYY_MM_DD');
            if to_regclass('oncebox.' || partition_name) is null then
                execute format('create table oncebox.%I (like oncebox.%I including all)', partition_name, parent);
                if parent = 'outbox' then
                    execute format('alter table oncebox.%I alter column body set storage external', partition_name);
                end if;
                execute format(
                    'alter table oncebox.%I add constraint day_fits check (day >= %L and day < %L)',
                    partition_name, partition_day, partition_day + 1);
                execute format(
                    'alter table oncebox.%I attach partition oncebox.%I for values from (%L) to (%L)',
                    parent, partition_name, partition_day, partition_day + 1);
                -- It has told that the rows fit; from here on the partition's own bounds do.
                execute format('alter table oncebox.%I drop constraint day_fits', partition_name);
                execute format('analyze oncebox.%I', partition_name);
                made := made + 1;
            end if;
        end loop;
    end loop;
    return made;
end
$$;

-- The function of 0003_searches.sql, with the day from there.
create or replace function oncebox.append_plain(
    uuid, bigint[], bigint[], bigint[], bigint[], bigint[], integer[], bigint[], text[], text[], bigint[], bigint[], integer[],
    text[], text[], text[], text[], bigint[], bigint[], bytea[], bigint[]
) returns table (id bigint, claimed boolean, generation integer, day date)
language plpgsql set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
    return query
    with durable as (
        select set_config('synchronous_commit',
                          case current_setting('synchronous_commit') when 'off' then 'on'
                               else current_setting('synchronous_commit') end, true) as level,
               oncebox.today() as day
    ),
    locked as materialized (
        select id from oncebox.cursor where id = any($2) order by id for update
    ),
    moved as (
        update oncebox.cursor as c
           set next_offset = b.next_offset,
               claimed_to = case when c.delivery_epoch = b.delivery_epoch and c.claimed_to = b.expected
                                 then b.next_offset else c.claimed_to end,
               appended = c.appended + b.events,
               appended_bytes = c.appended_bytes + b.bytes
          from locked
          join unnest($2, $3, $4, $5, $6, $7, $8)
               as b (id, owner_epoch, expected, next_offset, delivery_epoch, events, bytes) on b.id = locked.id
         where c.id = locked.id and c.owner = $1 and c.owner_epoch = b.owner_epoch and c.next_offset = b.expected
     returning c.id, c.generation, c.next_offset, c.claimed_to, b.expected, b.events
    ),
    stored as (
        insert into oncebox.outbox
               (cursor, record_offset, event_index, generation, day, key, event_type, content_type, traceparent, source_at,
                created_at, config_version, lane, body)
        select e.cursor, e.record_offset, e.event_index, moved.generation, durable.day, e.key, e.event_type, e.content_type,
               e.traceparent, e.source_at, clock_timestamp(), e.config_version, e.lane, e.body
          from (select unnest($11) as cursor, unnest($12) as record_offset, unnest($13) as event_index, unnest($14) as key,
                       unnest($15) as event_type, unnest($16) as content_type, unnest($17) as traceparent,
                       unnest($18) as source_at, unnest($19) as config_version, unnest($20) as body, unnest($21) as lane) as e
          join moved on moved.id = e.cursor
         cross join durable
    ),
    noted as (
        insert into oncebox.ledger
               (cursor, from_offset, to_offset, generation, day, events, dead, filtered, tombstones, suppressed)
        select moved.id, moved.expected, moved.next_offset, moved.generation, durable.day, moved.events, 0,
               l.filtered::int8multirange, l.tombstones::int8multirange, '{}'
          from moved
          join unnest($2, $9, $10) as l (id, filtered, tombstones) on l.id = moved.id
         cross join durable
    )
    select moved.id, moved.claimed_to = moved.next_offset, moved.generation, durable.day
      from moved
     cross join durable;
end
$$;

-- The function of 0003_searches.sql, fenced: after a failover that lost commits a process has events that are not stored here, or
-- are stored anew under another day. The one of before stays, for binaries of before.
create function oncebox.settle_new(
    bigint[], bigint[], integer[], integer[], date[], integer[], integer[], uuid, bigint[], bigint[], bigint[],
    bigint[]
) returns table (written bigint)
language plpgsql set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
    return query
    with durable as materialized (
        select set_config('synchronous_commit',
                          case current_setting('synchronous_commit') when 'off' then 'on'
                               else current_setting('synchronous_commit') end, true) as level
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
    finished as (
        insert into oncebox.done
               (cursor, record_offset, event_index, generation, day, state, sends, status, body_bytes, at)
        select a.cursor, a.record_offset, a.event_index, a.generation, a.day, 'completed', 1, a.status, a.bytes,
               clock_timestamp()
          from (select unnest($1) as cursor, unnest($2) as record_offset, unnest($3) as event_index, unnest($4) as generation,
                       unnest($5) as day, unnest($6) as status, unnest($7) as bytes) as a
         cross join durable
         where (select fenced.count from fenced) = 0
    ),
    counted as (
        update oncebox.delivery as d
           set completed = d.completed + sums.events, settled_bytes = d.settled_bytes + sums.bytes
          from unnest($9, $10, $11) as sums (cursor, events, bytes)
          join locked on locked.cursor = sums.cursor
         where d.cursor = sums.cursor and (select fenced.count from fenced) = 0
    )
    select (select count(*) from locked) from fenced where fenced.count = 0;
end
$$;

-- The function of 0005_plans.sql: an event ends under the day that it is stored under, whatever its sender believes. What is not
-- stored does not end.
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
finished as (
    insert into oncebox.done
           (cursor, record_offset, event_index, generation, day, state, sends, status, body_bytes, at)
    select a.cursor, a.record_offset, a.event_index, a.generation, stored.day, 'completed', a.sends, a.status, a.bytes,
           clock_timestamp()
      from unnest($1, $2, $3, $4, $6, $7, $8)
           as a (cursor, record_offset, event_index, generation, sends, status, bytes)
     cross join durable
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

-- What such a failover may have left behind before it was fenced: retries that do not find their event, because it is stored under
-- another day, or not at all. The first find it now; the others would be in the way of the event when it is stored again.
update oncebox.retry as r
   set day = o.day
  from oncebox.outbox as o
 where o.cursor = r.cursor and o.record_offset = r.record_offset and o.event_index = r.event_index
   and o.generation = r.generation and o.day <> r.day
   and not exists (
       select 1 from oncebox.outbox as same
        where same.cursor = r.cursor and same.record_offset = r.record_offset and same.event_index = r.event_index
          and same.generation = r.generation and same.day = r.day);

delete from oncebox.retry as r
 where not exists (
       select 1 from oncebox.outbox as o
        where o.cursor = r.cursor and o.record_offset = r.record_offset and o.event_index = r.event_index
          and o.generation = r.generation);

update oncebox.schema_version set version = 6;
