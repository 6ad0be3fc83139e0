-- Ends of events by the block. Run by outbox::migrate in one transaction; `oncebox.` is replaced by the configured schema.
--
-- A row for the end of each event cost Postgres a quarter of all its work. Now 64 neighbouring offsets share a row, in which each
-- has a bit. Processes that know only the rows of before must be stopped first.

-- Terminal events. Whoever sets a bit first decides. Rows of a cursor are changed only by whoever has locked its delivery: two
-- that change several in different order would wait for each other.
create table oncebox.ended (
    cursor bigint not null,
    -- Offsets from block * 64.
    block bigint not null,
    event_index integer not null,
    generation integer not null,
    day date not null,
    -- Bit n: the event of offset block * 64 + n has ended.
    bits bigint not null,
    -- Those of the last change that were set before it. The statement that makes a change learns so which were not the first.
    again bigint not null,
    -- Deliveries at the first attempt, which nothing else is written of: the last ones, and when, in ms since 1970 times 1000, with
    -- their status added. What comes within a tenth of a second, with the same status, is taken together.
    tried bigint not null,
    tried_at bigint not null,
    -- Those before, in turns.
    tried_before bigint[],
    primary key (cursor, block, event_index, generation, day)
) partition by range (day);

-- What is to be said of the other ends.
alter table oncebox.done rename to remark;
alter table oncebox.remark drop column body_bytes;

do $$
declare
    old record;
begin
    for old in
        select c.relname from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
         where i.inhparent = 'oncebox.remark'::regclass
    loop
        execute format('alter table oncebox.%I rename to %I', old.relname, 'remark' || substr(old.relname, 5));
    end loop;
end
$$;

create function oncebox.has(bits bigint, record_offset bigint) returns boolean
language sql immutable as $$
    select (bits >> (record_offset & 63)::integer) & 1 = 1
$$;

-- Whether deliveries of these two times are taken together: they have one status, and are near.
create function oncebox.is_one_time(earlier bigint, later bigint) returns boolean
language sql immutable as $$
    select later - earlier < 100 * 1000 and (later - earlier) % 1000 = 0
$$;

-- Events as ended, each once, for whoever looks. By the cursor and the block, not by the offset, is how to ask.
create view oncebox.done as
select e.cursor, (e.block << 6) + n.bit as record_offset, e.event_index, e.generation, e.day, e.block,
       coalesce(r.state, 'completed') as state, coalesce(r.sends, 1) as sends,
       case when r.state is null then first.status else r.status end as status, coalesce(r.at, first.at) as at
  from oncebox.ended as e
 cross join generate_series(0, 63) as n (bit)
  left join oncebox.remark as r
    on r.cursor = e.cursor and r.record_offset = (e.block << 6) + n.bit and r.event_index = e.event_index
   and r.generation = e.generation and r.day = e.day
  left join lateral (
       select (t.at % 1000)::integer as status, to_timestamp(t.at / 1000 / 1000.0) as at
         from (select e.tried as bits, e.tried_at as at
                union all
               select e.tried_before[i], e.tried_before[i + 1]
                 from generate_series(1, cardinality(e.tried_before), 2) as i) as t
        where oncebox.has(t.bits, n.bit)
        limit 1) as first on r.state is null
 where oncebox.has(e.bits, n.bit);

-- End events: all those that had not ended before, which are in the answer. Only for whoever has locked the deliveries.
create function oncebox.finish(
    bigint[], bigint[], integer[], integer[], date[], text, integer[], integer[]
) returns table (cursor bigint, record_offset bigint, event_index integer, generation integer, day date)
language plpgsql set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
    return query
    with ending as materialized (
        select unnest($1) as cursor, unnest($2) as record_offset, unnest($3) as event_index, unnest($4) as generation,
               unnest($5) as day, unnest($7) as sends, unnest($8) as status
    ),
    marked as (
        insert into oncebox.ended as b (cursor, block, event_index, generation, day, bits, again, tried, tried_at)
        select e.cursor, e.record_offset >> 6, e.event_index, e.generation, e.day,
               bit_or(1::bigint << (e.record_offset & 63)::integer), 0, 0, 0
          from ending as e
         group by e.cursor, e.record_offset >> 6, e.event_index, e.generation, e.day
         order by e.cursor, e.record_offset >> 6, e.event_index, e.generation, e.day
            on conflict (cursor, block, event_index, generation, day) do update
           set bits = b.bits | excluded.bits, again = b.bits & excluded.bits
     returning cursor, block, event_index, generation, day, again
    ),
    first as materialized (
        select e.cursor, e.record_offset, e.event_index, e.generation, e.day, e.sends, e.status
          from ending as e
          join marked as m
            on m.cursor = e.cursor and m.block = e.record_offset >> 6 and m.event_index = e.event_index
           and m.generation = e.generation and m.day = e.day
         where not oncebox.has(m.again, e.record_offset)
    ),
    remarked as (
        insert into oncebox.remark (cursor, record_offset, event_index, generation, day, state, sends, status, at)
        select f.cursor, f.record_offset, f.event_index, f.generation, f.day, $6, f.sends, f.status, clock_timestamp()
          from first as f
    )
    select f.cursor, f.record_offset, f.event_index, f.generation, f.day from first as f;
end
$$;

-- The function of 0006_today.sql, for these tables.
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
        foreach parent in array array['outbox', 'ended', 'remark', 'attempt', 'ledger'] loop
            partition_name := parent || '_' || to_char(partition_day, 'YYYY_MM_DD');
            if to_regclass('oncebox.' || partition_name) is null then
                execute format('create table oncebox.%I (like oncebox.%I including all)', partition_name, parent);
                if parent = 'outbox' then
                    execute format('alter table oncebox.%I alter column body set storage external', partition_name);
                elsif parent = 'ended' then
                    -- A row is changed a few times, soon after it is made: the new one should fit beside the old one.
                    execute format('alter table oncebox.%I set (fillfactor = 50)', partition_name);
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

select oncebox.make_partitions(0);

do $$
declare
    old record;
begin
    -- Days that are over have partitions of their own too.
    for old in
        select to_date(right(c.relname, 10), 'YYYY_MM_DD') as day
          from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
         where i.inhparent = 'oncebox.remark'::regclass
    loop
        if to_regclass('oncebox.ended_' || to_char(old.day, 'YYYY_MM_DD')) is null then
            execute format('create table oncebox.%I partition of oncebox.ended for values from (%L) to (%L) with (fillfactor = 50)',
                           'ended_' || to_char(old.day, 'YYYY_MM_DD'), old.day, old.day + 1);
        end if;
    end loop;
end
$$;

insert into oncebox.ended (cursor, block, event_index, generation, day, bits, again, tried, tried_at)
select r.cursor, r.record_offset >> 6, r.event_index, r.generation, r.day,
       bit_or(1::bigint << (r.record_offset & 63)::integer), 0, 0, 0
  from oncebox.remark as r
 group by r.cursor, r.record_offset >> 6, r.event_index, r.generation, r.day;

update oncebox.schema_version set version = 7, oldest_binary = 7;
