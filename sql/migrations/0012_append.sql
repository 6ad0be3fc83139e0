-- One function stores what is read, repeats suppressed or not, and is given what differs. Run by outbox::migrate in one transaction;
-- `oncebox.` is replaced by the configured schema.
--
-- Of eleven lists six said the same of every event, most of the time; and with `deduplication` every event went through the general
-- statement, which is planned each time and copies each body three times. The function of before stays, for binaries of before.

create function oncebox.append_events(
    uuid, bigint[], bigint[], bigint[], bigint[], bigint[], integer[], bigint[], text[], text[],
    bigint[], bigint[], integer[], text[], text[], text[], text[], bigint[], bigint[], bytea[], bigint[],
    text, text, bigint, bytea[], double precision[]
) returns table (id bigint, claimed boolean, generation integer, day date, left_offset bigint, left_index integer)
language plpgsql set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_mergejoin = off set jit = off as $$
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
         where c.id = any($2) and c.id = locked.id and c.owner = $1 and c.owner_epoch = b.owner_epoch and c.next_offset = b.expected
     returning c.id, c.workflow, c.generation, c.next_offset, c.claimed_to, b.expected, b.events
    ),
    fresh as (
        insert into oncebox.seen as s (workflow, fingerprint, cursor, record_offset, event_index, expires_at)
        select distinct on (moved.workflow, f.fingerprint)
               moved.workflow, f.fingerprint, f.cursor, f.record_offset, coalesce(f.event_index, 0),
               clock_timestamp() + make_interval(secs => f.seconds)
          from unnest($11, $12, $13, $25, $26) as f (cursor, record_offset, event_index, fingerprint, seconds)
          join moved on moved.id = f.cursor
         where cardinality($25) > 0 and f.fingerprint is not null
         order by moved.workflow, f.fingerprint, f.cursor, f.record_offset, f.event_index
            on conflict (workflow, fingerprint) do update
           set cursor = excluded.cursor, record_offset = excluded.record_offset, event_index = excluded.event_index,
               expires_at = excluded.expires_at
         where s.expires_at <= clock_timestamp()
            or (s.cursor = excluded.cursor and s.record_offset = excluded.record_offset
                and s.event_index = excluded.event_index)
     returning s.cursor, s.record_offset, s.event_index
    ),
    stored as (
        insert into oncebox.outbox
               (cursor, record_offset, event_index, generation, day, key, event_type, content_type, traceparent, source_at,
                created_at, config_version, lane, body)
        select e.cursor, e.record_offset, coalesce(e.event_index, 0), moved.generation, durable.day, e.key,
               coalesce(e.event_type, $22), coalesce(e.content_type, $23), e.traceparent, e.source_at, clock_timestamp(),
               coalesce(e.config_version, $24), e.lane, e.body
          from (select unnest($11) as cursor, unnest($12) as record_offset, unnest($13) as event_index, unnest($14) as key,
                       unnest($15) as event_type, unnest($16) as content_type, unnest($17) as traceparent,
                       unnest($18) as source_at, unnest($19) as config_version, unnest($20) as body, unnest($21) as lane,
                       unnest($25) as fingerprint) as e
          join moved on moved.id = e.cursor
         cross join durable
          left join fresh on fresh.cursor = e.cursor and fresh.record_offset = e.record_offset
                         and fresh.event_index = coalesce(e.event_index, 0)
         where e.fingerprint is null or fresh.cursor is not null
    ),
    repeats as materialized (
        select e.cursor, e.record_offset, coalesce(e.event_index, 0) as event_index, octet_length(e.body) as bytes
          from (select unnest($11) as cursor, unnest($12) as record_offset, unnest($13) as event_index, unnest($20) as body,
                       unnest($25) as fingerprint
                 where cardinality($25) > 0) as e
          join moved on moved.id = e.cursor
          left join fresh on fresh.cursor = e.cursor and fresh.record_offset = e.record_offset
                         and fresh.event_index = coalesce(e.event_index, 0)
         where e.fingerprint is not null and fresh.cursor is null
    ),
    repeats_of as materialized (
        select r.cursor, count(*)::integer as events, sum(r.bytes)::bigint as bytes from repeats as r group by r.cursor
    ),
    -- Records all of whose events are repeats.
    silent as materialized (
        select all_of.cursor, range_agg(int8range(all_of.record_offset, all_of.record_offset + 1)) as offsets
          from (select e.cursor, e.record_offset, count(*) as events
                  from (select unnest($11) as cursor, unnest($12) as record_offset where cardinality($25) > 0) as e
                 group by e.cursor, e.record_offset) as all_of
          join (select r.cursor, r.record_offset, count(*) as events from repeats as r group by r.cursor, r.record_offset) as repeated
            on repeated.cursor = all_of.cursor and repeated.record_offset = all_of.record_offset and repeated.events = all_of.events
         group by all_of.cursor
    ),
    deliveries as materialized (
        select v.cursor from oncebox.delivery as v
         where v.cursor = any (array(select r.cursor from repeats_of as r)) order by v.cursor for update
    ),
    counted as (
        update oncebox.delivery as v
           set suppressed = v.suppressed + r.events, settled_bytes = v.settled_bytes + r.bytes
          from repeats_of as r
          join deliveries on deliveries.cursor = r.cursor
         where v.cursor = r.cursor and v.cursor = any (array(select r.cursor from repeats_of as r))
    ),
    noted as (
        insert into oncebox.ledger
               (cursor, from_offset, to_offset, generation, day, events, dead, filtered, tombstones, suppressed)
        select moved.id, moved.expected, moved.next_offset, moved.generation, durable.day, moved.events - coalesce(r.events, 0), 0,
               l.filtered::int8multirange, l.tombstones::int8multirange, coalesce(silent.offsets, '{}')
          from moved
          join unnest($2, $9, $10) as l (id, filtered, tombstones) on l.id = moved.id
          left join repeats_of as r on r.cursor = moved.id
          left join silent on silent.cursor = moved.id
         cross join durable
    )
    select moved.id, moved.claimed_to = moved.next_offset, moved.generation, durable.day, null::bigint, null::integer
      from moved
     cross join durable
     union all
    select r.cursor, null, null, null, r.record_offset, r.event_index from repeats as r;
end
$$;

-- Decides what becomes of events that have a uniqueness key, in the transaction that stores them and before they are stored: see
-- sql/ingest/take_unique.sql. Every statement in here sees what was committed before it began, the locks of the first ones included.
-- The function of 0011_unique.sql; events whose key nobody else has, which are most, are stored together, and only the others are
-- looked at one by one.
create or replace function oncebox.take_unique(
    process uuid, cursors bigint[], epochs bigint[], expected bigint[],
    workflows text[], fingerprints bytea[], event_cursors bigint[], offsets bigint[], indexes integer[],
    state_lists text[], periods text[], conflicts text[], kept double precision[], own_dues double precision[], laned boolean[]
) returns table (
    ordinal integer, fate text, other_cursor bigint, other_offset bigint, other_index integer, other_generation integer,
    other_state text, due double precision
)
language plpgsql as $$
declare
    held bigint[];
    met integer[];
    met_cursors bigint[];
    looked_at integer[];
    i integer;
    fates text[];
    others jsonb[] := array_fill(null::jsonb, array[greatest(cardinality(fingerprints), 1)]);
    dues double precision[] := array_fill(null::double precision, array[greatest(cardinality(fingerprints), 1)]);
    one record;
    mate integer;
    own_generation integer;
    old_due double precision;
begin
    perform 1 from oncebox.cursor as c where c.id = any(cursors) order by c.id for update;
    select coalesce(array_agg(c.id), '{}') into held
      from oncebox.cursor as c
      join unnest(cursors, epochs, expected) as b (id, epoch, expected) on b.id = c.id
     where c.next_offset = b.expected and (process is null or (c.owner = process and c.owner_epoch = b.epoch));
    insert into oncebox.unique_key as k (workflow, fingerprint)
    select distinct f.workflow, f.fingerprint
      from unnest(workflows, fingerprints, event_cursors) as f (workflow, fingerprint, cursor)
     where f.cursor = any(held)
     order by f.workflow, f.fingerprint
        on conflict on constraint unique_key_pkey do update set workflow = excluded.workflow;
    -- Those whose key other events have: stored earlier, or of the same batch.
    select coalesce(array_agg(distinct f.n::integer), '{}'), coalesce(array_agg(distinct found.cursor), '{}') into met, met_cursors
      from unnest(workflows, fingerprints) with ordinality as f (workflow, fingerprint, n)
     cross join lateral (
           select e.cursor from oncebox.unique_event as e
            where e.workflow = f.workflow and e.fingerprint = f.fingerprint
           offset 0) as found;
    select coalesce(array_agg(f.n order by f.n) filter (where f.times > 1 or f.n = any(met)), '{}') into looked_at
      from (select b.n::integer as n, count(*) over (partition by b.workflow, b.fingerprint) as times
              from unnest(workflows, fingerprints) with ordinality as b (workflow, fingerprint, n)) as f;
    perform 1
       from oncebox.delivery as d
      where d.cursor = any(held || met_cursors)
      order by d.cursor
        for update;
    select coalesce(array_agg(case when f.cursor = any(held) then 'stored' end order by f.n), '{}') into fates
      from unnest(event_cursors) with ordinality as f (cursor, n);
    insert into oncebox.unique_event as e
           (workflow, fingerprint, cursor, record_offset, event_index, generation, created_at, stored, expires_at)
    select f.workflow, f.fingerprint, f.cursor, f.record_offset, f.event_index, c.generation, clock_timestamp(), true,
           greatest(clock_timestamp() + make_interval(secs => f.kept),
                    timezone('utc', timezone('utc', clock_timestamp()) + coalesce(f.period, 'PT0S')::interval))
      from unnest(workflows, fingerprints, event_cursors, offsets, indexes, kept, periods) with ordinality
           as f (workflow, fingerprint, cursor, record_offset, event_index, kept, period, n)
      join oncebox.cursor as c on c.id = f.cursor
     where f.cursor = any(held) and f.n <> all(looked_at);
    foreach i in array looked_at loop
        continue when not event_cursors[i] = any(held);
        select c.generation into own_generation from oncebox.cursor as c where c.id = event_cursors[i];
        for one in
            select e.cursor, e.record_offset, e.event_index, e.generation, s.state,
                   e.xmin = pg_current_xact_id()::xid as is_mate
              from oncebox.unique_event as e
             cross join lateral (
                   select case when e.xmin <> pg_current_xact_id()::xid
                               then oncebox.state_of(e.cursor, e.record_offset, e.event_index, e.generation, e.ended)
                               -- One of the same batch, as it is about to be stored.
                               else (select case when fates[j] = 'waits' or laned[j] then 'pending'
                                                 when coalesce(dues[j], own_dues[j]) > extract(epoch from clock_timestamp()) then 'scheduled'
                                                 else 'available' end
                                       from generate_series(1, i - 1) as j
                                      where event_cursors[j] = e.cursor and offsets[j] = e.record_offset and indexes[j] = e.event_index
                                      limit 1) end as state) as s
             where e.workflow = workflows[i] and e.fingerprint = fingerprints[i] and e.stored
               and (e.cursor, e.record_offset, e.event_index, e.generation)
                   <> (event_cursors[i], offsets[i], indexes[i], own_generation)
               and (periods[i] is null
                    or timezone('utc', timezone('utc', e.created_at) + periods[i]::interval) > clock_timestamp())
               and s.state = any(string_to_array(state_lists[i], ','))
             order by e.created_at desc, e.record_offset desc, e.event_index desc
        loop
            mate := null;
            if one.is_mate then
                select max(j) into mate from generate_series(1, i - 1) as j
                 where event_cursors[j] = one.cursor and offsets[j] = one.record_offset and indexes[j] = one.event_index;
                continue when fates[mate] = 'cancelled';
            end if;
            if conflicts[i] in ('ignore', 'reject') then
                fates[i] := case conflicts[i] when 'ignore' then 'suppressed' else 'duplicate' end;
                others[i] := to_jsonb(one);
                exit;
            end if;
            -- What has ended cannot be replaced, nor is it in the way.
            continue when one.state in ('completed', 'cancelled', 'discarded');
            if conflicts[i] = 'replace_except_schedule' then
                select extract(epoch from r.due)::double precision into old_due
                  from oncebox.retry as r
                 where r.cursor = one.cursor and r.record_offset = one.record_offset and r.event_index = one.event_index
                   and r.generation = one.generation and r.state = 'scheduled';
                if mate is not null and one.state = 'scheduled' then
                    old_due := coalesce(dues[mate], own_dues[mate]);
                end if;
                dues[i] := coalesce(old_due, dues[i]);
            end if;
            if mate is not null then
                fates[mate] := 'cancelled';
                update oncebox.unique_event as e
                   set ended = 'cancelled'
                 where e.workflow = workflows[i] and e.fingerprint = fingerprints[i] and e.cursor = one.cursor
                   and e.record_offset = one.record_offset and e.event_index = one.event_index and e.generation = one.generation;
                -- It waited for one that is being sent: so does whoever replaces it, which is found in its own right.
            elsif not oncebox.cancel_waiting(one.cursor, one.record_offset, one.event_index, one.generation) then
                perform 1 from oncebox.retry as r
                  where r.cursor = one.cursor and r.record_offset = one.record_offset and r.event_index = one.event_index
                    and r.generation = one.generation and r.state = 'active';
                if found then
                    fates[i] := 'waits';
                    others[i] := to_jsonb(one);
                end if;
            elsif others[i] is null then
                others[i] := to_jsonb(one);
            end if;
        end loop;
        -- What is refused over HTTP leaves nothing.
        if fates[i] in ('stored', 'waits') or (fates[i] = 'duplicate' and process is not null) then
            insert into oncebox.unique_event as e
                   (workflow, fingerprint, cursor, record_offset, event_index, generation, created_at, stored, expires_at)
            values (workflows[i], fingerprints[i], event_cursors[i], offsets[i], indexes[i], own_generation, clock_timestamp(),
                    fates[i] <> 'duplicate',
                    greatest(clock_timestamp() + make_interval(secs => kept[i]),
                             timezone('utc', timezone('utc', clock_timestamp()) + coalesce(periods[i], 'PT0S')::interval)))
                on conflict on constraint unique_event_pkey do nothing;
        end if;
    end loop;
    return query
    select n::integer, fates[n], (others[n] ->> 'cursor')::bigint, (others[n] ->> 'record_offset')::bigint,
           (others[n] ->> 'event_index')::integer, (others[n] ->> 'generation')::integer, others[n] ->> 'state', dues[n]
      from generate_series(1, cardinality(fingerprints)) as n;
end
$$;

-- An event that is not over and has one of these uniqueness keys, which a record gets that could not be read when it came. Locks the
-- keys until the transaction ends, and looks after that.
create function oncebox.rival_of_new(at_cursor bigint, of_workflow text, fingerprints bytea[])
returns table (cursor bigint, record_offset bigint, event_index integer, generation integer)
language plpgsql as $$
#variable_conflict use_column
begin
    -- Cursors before keys, as everywhere.
    perform 1 from oncebox.cursor as c where c.id = at_cursor for update;
    insert into oncebox.unique_key as k (workflow, fingerprint)
    select distinct of_workflow, f.fingerprint
      from unnest(fingerprints) as f (fingerprint)
     order by f.fingerprint
        on conflict on constraint unique_key_pkey do update set workflow = excluded.workflow;
    return query
    select r.cursor, r.record_offset, r.event_index, r.generation
      from unnest(fingerprints) as f (fingerprint)
      join oncebox.unique_event as e on e.workflow = of_workflow and e.fingerprint = f.fingerprint and e.stored
      join oncebox.retry as r
        on r.cursor = e.cursor and r.record_offset = e.record_offset and r.event_index = e.event_index and r.generation = e.generation
     limit 1;
    if found then
        -- Refused: keys that no event has are not kept.
        delete from oncebox.unique_key as k
         where k.workflow = of_workflow and k.fingerprint = any(fingerprints)
           and not exists (
               select 1 from oncebox.unique_event as e where e.workflow = k.workflow and e.fingerprint = k.fingerprint);
    end if;
end
$$;

update oncebox.schema_version set version = 12;
