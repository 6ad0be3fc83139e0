-- Uniqueness, events over HTTP, and cancelling. Run by outbox::migrate in one transaction; `oncebox.` is replaced by the configured schema.
--
-- What must hold: whoever stores an event with a uniqueness key holds that key's row until it commits, and looks at the events of the
-- key in a statement after the one that locked it. Events with a key have a row in `retry` until they end, so that a row's lock decides
-- between sending one and replacing it.

-- What is locked.
create table oncebox.unique_key (
    workflow text not null,
    fingerprint bytea not null,
    primary key (workflow, fingerprint)
) partition by hash (workflow, fingerprint);

-- Which events have which key.
create table oncebox.unique_event (
    workflow text not null,
    fingerprint bytea not null,
    cursor bigint not null,
    record_offset bigint not null,
    event_index integer not null,
    generation integer not null,
    created_at timestamptz not null,
    -- Forgotten after this, once the event has ended.
    expires_at timestamptz not null,
    primary key (workflow, fingerprint, cursor, record_offset, event_index, generation)
) partition by hash (workflow, fingerprint);

create index unique_event_place on oncebox.unique_event (cursor, record_offset, event_index, generation);
create index unique_event_expiry on oncebox.unique_event (expires_at);

do $$
begin
    for part in 0..7 loop
        execute format(
            'create table oncebox.unique_key_%s partition of oncebox.unique_key for values with (modulus 8, remainder %s) with (fillfactor = 70)',
            part, part);
        execute format(
            'create table oncebox.unique_event_%s partition of oncebox.unique_event for values with (modulus 8, remainder %s)', part, part);
    end loop;
end
$$;

-- For whom a pending event waits that would replace one that is being sent.
alter table oncebox.retry
    add column waits_cursor bigint,
    add column waits_offset bigint,
    add column waits_index integer,
    add column waits_generation integer;

create index retry_waits on oncebox.retry (workflow) where held = 'unique';

-- What a caller over HTTP sent under a key of its own: another body under the same key is a mistake of theirs.
alter table oncebox.seen add column digest bytea, add column generation integer not null default 0;

-- Where an event stands: one that is neither to be tried nor ended is being stored (`born`), or was purged.
create function oncebox.state_of(
    at_cursor bigint, at_offset bigint, at_index integer, at_generation integer, born boolean
) returns text
language plpgsql stable as $$
declare
    found text;
begin
    select r.state into found from oncebox.retry as r
     where r.cursor = at_cursor and r.record_offset = at_offset and r.event_index = at_index and r.generation = at_generation;
    if found is not null then
        return found;
    end if;
    if born then
        return 'available';
    end if;
    select m.state into found from oncebox.remark as m
     where m.cursor = at_cursor and m.record_offset = at_offset and m.event_index = at_index and m.generation = at_generation
     limit 1;
    return coalesce(found, 'completed');
end
$$;

-- Ends an event that waits, as cancelled. False when it does not wait: it has ended, or is being sent. Only for whoever has locked the
-- deliveries.
create function oncebox.cancel_waiting(at_cursor bigint, at_offset bigint, at_index integer, at_generation integer) returns boolean
language plpgsql as $$
declare
    gone record;
begin
    delete from oncebox.retry as r
     where r.cursor = at_cursor and r.record_offset = at_offset and r.event_index = at_index and r.generation = at_generation
       and r.state <> 'active'
    returning r.day, r.sends into gone;
    if not found then
        return false;
    end if;
    perform 1 from oncebox.finish(array[at_cursor], array[at_offset], array[at_index], array[at_generation], array[gone.day], 'cancelled',
                                  array[gone.sends], array[null::integer]);
    if found then
        update oncebox.delivery as d
           set cancelled = d.cancelled + 1,
               settled_bytes = d.settled_bytes + coalesce(
                   (select octet_length(o.body) from oncebox.outbox as o
                     where o.cursor = at_cursor and o.record_offset = at_offset and o.event_index = at_index
                       and o.generation = at_generation and o.day = gone.day), 0)
         where d.cursor = at_cursor;
    end if;
    return true;
end
$$;

-- Decides what becomes of events that have a uniqueness key, in the transaction that stores them and before they are stored: see
-- sql/ingest/take_unique.sql. Every statement in here sees what was committed before it began, the locks of the first ones included.
create function oncebox.take_unique(
    process uuid, cursors bigint[], epochs bigint[], expected bigint[],
    workflows text[], fingerprints bytea[], event_cursors bigint[], offsets bigint[], indexes integer[],
    state_lists text[], periods text[], conflicts text[], kept double precision[]
) returns table (
    ordinal integer, fate text, other_cursor bigint, other_offset bigint, other_index integer, other_generation integer,
    other_state text, due double precision
)
language plpgsql as $$
declare
    held bigint[];
    fates text[] := array_fill(null::text, array[greatest(cardinality(fingerprints), 1)]);
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
    perform 1
       from oncebox.delivery as d
      where d.cursor = any(held)
         or d.cursor in (select e.cursor from oncebox.unique_event as e
                          where (e.workflow, e.fingerprint) in (
                                select f.workflow, f.fingerprint from unnest(workflows, fingerprints) as f (workflow, fingerprint)))
      order by d.cursor
        for update;
    for i in 1..cardinality(fingerprints) loop
        continue when not event_cursors[i] = any(held);
        fates[i] := 'stored';
        select c.generation into own_generation from oncebox.cursor as c where c.id = event_cursors[i];
        for one in
            select e.cursor, e.record_offset, e.event_index, e.generation, s.state,
                   e.xmin = pg_current_xact_id()::xid as is_mate
              from oncebox.unique_event as e
             cross join lateral (
                   select oncebox.state_of(e.cursor, e.record_offset, e.event_index, e.generation,
                                           e.xmin = pg_current_xact_id()::xid) as state) as s
             where e.workflow = workflows[i] and e.fingerprint = fingerprints[i]
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
                dues[i] := coalesce(old_due, dues[i]);
            end if;
            if mate is not null then
                fates[mate] := 'cancelled';
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
        if fates[i] in ('stored', 'waits') then
            insert into oncebox.unique_event as e
                   (workflow, fingerprint, cursor, record_offset, event_index, generation, created_at, expires_at)
            values (workflows[i], fingerprints[i], event_cursors[i], offsets[i], indexes[i], own_generation, clock_timestamp(),
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

-- Lets events go that waited for another of their key: see sql/relay/release_unique.sql.
create function oncebox.release_unique(of_workflow text) returns bigint
language plpgsql as $$
declare
    released bigint := 0;
    one record;
begin
    if not exists (select 1 from oncebox.retry as r where r.workflow = of_workflow and r.held = 'unique') then
        return 0;
    end if;
    perform 1
       from oncebox.delivery as d
      where d.cursor in (select r.cursor from oncebox.retry as r where r.workflow = of_workflow and r.held = 'unique'
                          union
                         select r.waits_cursor from oncebox.retry as r where r.workflow = of_workflow and r.held = 'unique')
      order by d.cursor
        for update;
    for one in
        select r.cursor, r.record_offset, r.event_index, r.generation, r.waits_cursor, r.waits_offset, r.waits_index, r.waits_generation
          from oncebox.retry as r
         where r.workflow = of_workflow and r.held = 'unique'
           and not exists (
               select 1 from oncebox.retry as w
                where w.cursor = r.waits_cursor and w.record_offset = r.waits_offset and w.event_index = r.waits_index
                  and w.generation = r.waits_generation and w.state = 'active')
         limit 1000
    loop
        perform oncebox.cancel_waiting(one.waits_cursor, one.waits_offset, one.waits_index, one.waits_generation);
        -- Leased again meanwhile: it is waited for once more.
        continue when exists (
            select 1 from oncebox.retry as w
             where w.cursor = one.waits_cursor and w.record_offset = one.waits_offset and w.event_index = one.waits_index
               and w.generation = one.waits_generation);
        update oncebox.retry as r
           set state = case when r.lane is not null then 'pending' when r.due > clock_timestamp() then 'scheduled' else 'available' end,
               held = case when r.lane is not null then 'order' end,
               waits_cursor = null, waits_offset = null, waits_index = null, waits_generation = null
         where r.cursor = one.cursor and r.record_offset = one.record_offset and r.event_index = one.event_index
           and r.generation = one.generation and r.held = 'unique';
        if found then
            released := released + 1;
        end if;
    end loop;
    return released;
end
$$;

update oncebox.schema_version set version = 11;
