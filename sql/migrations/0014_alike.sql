-- Storing what is read, where all of it is alike, and writing down deliveries with fewer steps. Run by outbox::migrate in one transaction;
-- `oncebox.` is replaced by the configured schema.
--
-- Most batches are: each event the only one of its record, one type, one configuration, nothing to compare with. Then five lists are
-- looked through instead of thirteen, and nothing is made ready that compares. Their bodies come as one value, which is cut where each is
-- stored: a list of them is copied three times before that.

create function oncebox.append_alike(
    uuid, bigint[], bigint[], bigint[], bigint[], bigint[], integer[], bigint[], text[], text[],
    bigint[], bigint[], text[], bigint[], bytea, integer[], integer[], text, text, bigint
) returns table (id bigint, claimed boolean, generation integer, day date)
language plpgsql set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    this_day date := oncebox.today();
begin
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
    return query
    with locked as materialized (
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
          join unnest($2, $3, $4, $5, $6, $7, $8, $9, $10)
               as b (id, owner_epoch, expected, next_offset, delivery_epoch, events, bytes, filtered, tombstones) on b.id = locked.id
         where c.id = any($2) and c.id = locked.id and c.owner = $1 and c.owner_epoch = b.owner_epoch and c.next_offset = b.expected
     returning c.id, c.generation, c.next_offset, c.claimed_to, b.expected, b.events, b.filtered, b.tombstones
    ),
    stored as (
        insert into oncebox.outbox
               (cursor, record_offset, event_index, generation, day, key, event_type, content_type, source_at, created_at,
                config_version, body)
        select e.cursor, e.record_offset, 0, moved.generation, this_day, e.key, $18, $19, e.source_at, clock_timestamp(), $20,
               substring($15 from e.body_from for e.body_bytes)
          from (select unnest($11) as cursor, unnest($12) as record_offset, unnest($13) as key, unnest($14) as source_at,
                       unnest($16) as body_from, unnest($17) as body_bytes) as e
          join moved on moved.id = e.cursor
    ),
    noted as (
        insert into oncebox.ledger
               (cursor, from_offset, to_offset, generation, day, events, dead, filtered, tombstones, suppressed)
        select moved.id, moved.expected, moved.next_offset, moved.generation, this_day, moved.events, 0,
               moved.filtered::int8multirange, moved.tombstones::int8multirange, '{}'
          from moved
    )
    select moved.id, moved.claimed_to = moved.next_offset, moved.generation, this_day from moved;
end
$$;

-- Write deliveries down: see sql/relay/settle_new.sql. What settle_new does, which stays for binaries of before, in two statements that take
-- their locks as they go: an update that goes through sorted cursors locks them in that order. Anything that is not as expected is an error,
-- which undoes all of it.
create function oncebox.settle_held(
    bigint[], bigint[], integer[], integer[], date[], bigint[], integer, uuid, bigint[], bigint[], bigint[], bigint[]
) returns table (written bigint)
language plpgsql set plan_cache_mode = force_generic_plan set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
set jit = off as $$
#variable_conflict use_column
declare
    moment bigint := (extract(epoch from clock_timestamp()) * 1000)::bigint * 1000 + $7;
    done bigint;
    clashes bigint;
begin
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
    update oncebox.delivery as d
       set completed = d.completed + mine.events, settled_bytes = d.settled_bytes + mine.bytes
      from (select m.cursor, m.events, m.bytes, m.epoch
              from unnest($9, $10, $11, $12) as m (cursor, events, bytes, epoch)
             order by m.cursor) as mine
     where d.cursor = mine.cursor and d.epoch = mine.epoch and d.owner = $8 and d.lease_until > clock_timestamp()
       and d.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
    get diagnostics done = row_count;
    if done <> cardinality($9) then
        raise unique_violation using message = 'a delivery is not held any more';
    end if;
    with marked as (
        insert into oncebox.ended as b (cursor, block, event_index, generation, day, bits, again, tried, tried_at)
        select a.cursor, a.block, a.event_index, a.generation, a.day, a.bits, 0, a.bits, moment
          from (select unnest($1) as cursor, unnest($2) as block, unnest($3) as event_index, unnest($4) as generation,
                       unnest($5) as day, unnest($6) as bits) as a
            on conflict (cursor, block, event_index, generation, day) do update
           set bits = b.bits | excluded.bits, again = b.bits & excluded.bits,
               tried = case when oncebox.is_one_time(b.tried_at, excluded.tried_at) then b.tried | excluded.tried
                            else excluded.tried end,
               tried_at = case when oncebox.is_one_time(b.tried_at, excluded.tried_at) then b.tried_at
                               else excluded.tried_at end,
               tried_before = case when oncebox.is_one_time(b.tried_at, excluded.tried_at) or b.tried = 0 then b.tried_before
                                   else b.tried_before || b.tried || b.tried_at end
     returning again
    )
    select count(*) into clashes from marked where again <> 0;
    if clashes > 0 then
        raise unique_violation using message = 'an event has ended before';
    end if;
    return query select done;
end
$$;

update oncebox.schema_version set version = 14;
