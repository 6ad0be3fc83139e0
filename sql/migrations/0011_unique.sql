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
    -- False for one that was refused: known for its replay, and in nobody's way.
    stored boolean not null default true,
    -- For when the record of its end is purged: cancelled, or null.
    ended text,
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

-- Where an event that has been stored stands.
create function oncebox.state_of(
    at_cursor bigint, at_offset bigint, at_index integer, at_generation integer, known text
) returns text
language plpgsql stable as $$
declare
    stands text;
begin
    select r.state into stands from oncebox.retry as r
     where r.cursor = at_cursor and r.record_offset = at_offset and r.event_index = at_index and r.generation = at_generation;
    if stands is not null then
        return stands;
    end if;
    select m.state into stands from oncebox.remark as m
     where m.cursor = at_cursor and m.record_offset = at_offset and m.event_index = at_index and m.generation = at_generation
     limit 1;
    if stands is not null then
        return stands;
    end if;
    -- Purged: a dead letter outlives the record of its end.
    perform 1 from oncebox.dead_letter as l
      where l.cursor = at_cursor and l.record_offset = at_offset and l.event_index = at_index and l.generation = at_generation;
    return case when found then 'discarded' else coalesce(known, 'completed') end;
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
        update oncebox.unique_event as e
           set ended = 'cancelled'
         where e.cursor = at_cursor and e.record_offset = at_offset and e.event_index = at_index and e.generation = at_generation;
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
    state_lists text[], periods text[], conflicts text[], kept double precision[], own_dues double precision[], laned boolean[]
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

-- An event that is not over and has the same uniqueness key as a dead letter. Locks the key until the transaction ends, and looks after that.
create function oncebox.rival_of(at_cursor bigint, at_offset bigint, at_index integer, at_generation integer)
returns table (cursor bigint, record_offset bigint, event_index integer, generation integer)
language plpgsql as $$
#variable_conflict use_column
begin
    -- Cursors before keys, as everywhere.
    perform 1 from oncebox.cursor as c where c.id = at_cursor for update;
    perform 1
       from oncebox.unique_key as k
      where (k.workflow, k.fingerprint) in (
            select e.workflow, e.fingerprint from oncebox.unique_event as e
             where e.cursor = at_cursor and e.record_offset = at_offset and e.event_index = at_index and e.generation = at_generation)
      order by k.workflow, k.fingerprint
        for update;
    return query
    select r.cursor, r.record_offset, r.event_index, r.generation
      from oncebox.unique_event as mine
      join oncebox.unique_event as e on e.workflow = mine.workflow and e.fingerprint = mine.fingerprint and e.stored
      join oncebox.retry as r
        on r.cursor = e.cursor and r.record_offset = e.record_offset and r.event_index = e.event_index and r.generation = e.generation
     where mine.cursor = at_cursor and mine.record_offset = at_offset and mine.event_index = at_index
       and mine.generation = at_generation
     limit 1;
end
$$;

-- Lets events go that waited for another of their key: see sql/relay/sweep.sql.
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

-- Events that are not to be sent any more: those that an operator has cancelled before their first attempt, until the claimed range cannot
-- come back before them, and those that were claimed, until they end.
create table oncebox.cancel (
    cursor bigint not null,
    record_offset bigint not null,
    event_index integer not null,
    generation integer not null,
    workflow text not null,
    who text not null,
    at timestamptz not null default clock_timestamp(),
    primary key (cursor, record_offset, event_index, generation)
);

create index cancel_workflow on oncebox.cancel (workflow);

-- Grows with every event that is cancelled before it was claimed: a claim that looked before does not move the range.
alter table oncebox.cursor add column cancels bigint not null default 0;

-- Whether an event is to be cancelled, as of now: for whoever has waited for a lock since its statement began.
create function oncebox.is_withdrawn(at_cursor bigint, at_offset bigint, at_index integer, at_generation integer) returns boolean
language plpgsql as $$
begin
    return exists (select 1 from oncebox.cancel as x
                    where x.cursor = at_cursor and x.record_offset = at_offset and x.event_index = at_index
                      and x.generation = at_generation);
end
$$;

-- Cancels an event: see sql/operate/cancel.sql.
create function oncebox.cancel_event(
    at_cursor bigint, at_offset bigint, at_index integer, at_generation integer, by_whom text
) returns text
language plpgsql as $$
declare
    standing record;
    over text;
    kept record;
begin
    select c.claimed_to, c.workflow, c.direct into standing from oncebox.cursor as c where c.id = at_cursor for update;
    if not found then
        return 'unknown';
    end if;
    perform 1 from oncebox.delivery as d where d.cursor = at_cursor for update;
    select coalesce(m.state, 'completed') into over
      from oncebox.ended as e
      left join oncebox.remark as m
        on m.cursor = e.cursor and m.record_offset = at_offset and m.event_index = e.event_index and m.generation = e.generation
       and m.day = e.day
     where e.cursor = at_cursor and e.block = at_offset >> 6 and e.event_index = at_index and e.generation = at_generation
       and oncebox.has(e.bits, at_offset)
     limit 1;
    if over is not null then
        return over;
    end if;
    if oncebox.cancel_waiting(at_cursor, at_offset, at_index, at_generation) then
        insert into oncebox.audit (who, action, workflow, detail)
        values (by_whom, 'event cancelled', standing.workflow, at_cursor::text || '-' || at_offset::text || '-' || at_index::text);
        return 'cancelled';
    end if;
    select o.day, octet_length(o.body) as bytes, o.delayed into kept
      from oncebox.outbox as o
     where o.cursor = at_cursor and o.record_offset = at_offset and o.event_index = at_index and o.generation = at_generation
     limit 1;
    if not found then
        return 'unknown';
    end if;
    insert into oncebox.cancel as x (cursor, record_offset, event_index, generation, workflow, who)
    values (at_cursor, at_offset, at_index, at_generation, standing.workflow, by_whom)
        on conflict on constraint cancel_pkey do nothing;
    if at_offset < standing.claimed_to or kept.delayed or standing.direct then
        insert into oncebox.audit (who, action, workflow, detail)
        values (by_whom, 'cancel requested', standing.workflow, at_cursor::text || '-' || at_offset::text || '-' || at_index::text);
        return 'requested';
    end if;
    perform 1 from oncebox.finish(array[at_cursor], array[at_offset], array[at_index], array[at_generation], array[kept.day], 'cancelled',
                                  array[0], array[null::integer]);
    update oncebox.delivery as d
       set cancelled = d.cancelled + 1, settled_bytes = d.settled_bytes + kept.bytes
     where d.cursor = at_cursor;
    update oncebox.cursor as c set cancels = c.cancels + 1 where c.id = at_cursor;
    insert into oncebox.audit (who, action, workflow, detail)
    values (by_whom, 'event cancelled', standing.workflow, at_cursor::text || '-' || at_offset::text || '-' || at_index::text);
    return 'cancelled';
end
$$;

-- Ends what was to be cancelled and is not being sent any more, and forgets what has ended: see sql/relay/sweep.sql.
create function oncebox.end_cancelled(of_workflow text) returns table (cursor bigint, record_offset bigint, event_index integer, generation integer)
language plpgsql as $$
#variable_conflict use_column
declare
    one record;
begin
    if not exists (select 1 from oncebox.cancel as x where x.workflow = of_workflow) then
        return;
    end if;
    perform 1
       from oncebox.delivery as d
      where d.cursor in (select x.cursor from oncebox.cancel as x where x.workflow = of_workflow)
      order by d.cursor
        for update;
    for one in select x.cursor, x.record_offset, x.event_index, x.generation from oncebox.cancel as x where x.workflow = of_workflow loop
        update oncebox.retry as r
           set state = 'retryable', leased_by = null, lease_until = null
         where r.cursor = one.cursor and r.record_offset = one.record_offset and r.event_index = one.event_index
           and r.generation = one.generation and r.state = 'active' and r.lease_until <= clock_timestamp();
        perform oncebox.cancel_waiting(one.cursor, one.record_offset, one.event_index, one.generation);
    end loop;
    delete from oncebox.cancel as x
     where x.workflow = of_workflow
       and exists (
           select 1 from oncebox.ended as e
            where e.cursor = x.cursor and e.block = x.record_offset >> 6 and e.event_index = x.event_index
              and e.generation = x.generation and oncebox.has(e.bits, x.record_offset))
       -- What was never sent may be given back, and claimed again: it is left out until the range cannot come back before it.
       and (exists (select 1 from oncebox.delivery as d where d.cursor = x.cursor and x.record_offset < d.settled_to)
            or exists (select 1 from oncebox.cursor as c where c.id = x.cursor and c.direct)
            or exists (
               select 1 from oncebox.outbox as o
                where o.cursor = x.cursor and o.record_offset = x.record_offset and o.event_index = x.event_index
                  and o.generation = x.generation and o.delayed));
    -- Of these a process may have some in memory that it has not sent.
    return query
    select x.cursor, x.record_offset, x.event_index, x.generation
      from oncebox.cancel as x
     where x.workflow = of_workflow
       and not exists (
           select 1 from oncebox.retry as r
            where r.cursor = x.cursor and r.record_offset = x.record_offset and r.event_index = x.event_index
              and r.generation = x.generation);
end
$$;

-- The function of 0008_by_block.sql: what is to be cancelled is not leased again.
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
       and not exists (
           select 1 from oncebox.cancel as x
            where x.cursor = r.cursor and x.record_offset = r.record_offset and x.event_index = r.event_index
              and x.generation = r.generation)
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

update oncebox.schema_version set version = 11;
