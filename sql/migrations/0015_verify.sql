-- What goes with the days that are past their retention, so that `verify` knows what must be there and what need not be. Run by
-- outbox::migrate in one transaction; `oncebox.` is replaced by the configured schema.
--
-- No table of before is changed. A binary of before drops days without a word: such a day stays on the list and cannot be looked at, and
-- `verify` then asks for less.

-- The days that there are partitions of, or were.
create table oncebox.kept_day (
    day date primary key,
    -- What it had is in `gone`: its partitions are dropped, or about to be.
    is_gone boolean not null default false
);

-- What went with such days, of each cursor.
create table oncebox.gone (
    cursor bigint primary key,
    -- Offsets of which the ledger said what became of them. What was read again afterwards is not among them.
    offsets int8multirange not null default '{}',
    -- Events by how they had ended.
    completed bigint not null default 0,
    cancelled bigint not null default 0,
    discarded bigint not null default 0
);

-- Days of which all is there that says what became of records and events.
create view oncebox.whole_day as
select to_date(right(c.relname, 10), 'YYYY_MM_DD') as day
  from pg_inherits as i
  join pg_class as c on c.oid = i.inhrelid
 where i.inhparent in ('oncebox.ledger'::regclass, 'oncebox.ended'::regclass, 'oncebox.remark'::regclass)
   and not i.inhdetachpending
 group by to_date(right(c.relname, 10), 'YYYY_MM_DD')
having count(*) = 3;

-- A day of which a part is gone already is none that can be looked at.
insert into oncebox.kept_day (day, is_gone)
select d.day, d.day not in (select w.day from oncebox.whole_day as w)
  from (select distinct to_date(right(c.relname, 10), 'YYYY_MM_DD') as day
          from pg_inherits as i
          join pg_class as c on c.oid = i.inhrelid
         where i.inhparent in ('oncebox.ledger'::regclass, 'oncebox.ended'::regclass, 'oncebox.remark'::regclass)) as d;

-- Of what went before this, only what the counters and cursors know: it is believed.
insert into oncebox.gone (cursor, offsets, completed, cancelled, discarded)
select c.id,
       case when c.cluster = '' then '{}'
            else int8multirange(int8range(least(c.start_offset, c.next_offset), c.next_offset)) - coalesce(told.offsets, '{}') end,
       d.completed - coalesce(ends.events, 0) + coalesce(remarks.cancelled, 0) + coalesce(remarks.discarded, 0),
       d.cancelled - coalesce(remarks.cancelled, 0),
       d.discarded - coalesce(remarks.discarded, 0)
  from oncebox.cursor as c
  join oncebox.delivery as d on d.cursor = c.id
  left join (select e.cursor, sum(bit_count(e.bits::bit(64)))::bigint as events
               from oncebox.ended as e
               join oncebox.kept_day as k on k.day = e.day and not k.is_gone
              group by e.cursor) as ends on ends.cursor = c.id
  left join (select m.cursor, count(*) filter (where m.state = 'cancelled') as cancelled,
                    count(*) filter (where m.state = 'discarded') as discarded
               from oncebox.remark as m
               join oncebox.kept_day as k on k.day = m.day and not k.is_gone
              group by m.cursor) as remarks on remarks.cursor = c.id
  left join lateral (
       select range_agg(int8range(first.from_offset, last.to_offset)) as offsets
         from oncebox.kept_day as k
        cross join lateral (
              select l.from_offset from oncebox.ledger as l
               where l.cursor = c.id and l.day = k.day order by l.from_offset limit 1) as first
        cross join lateral (
              select l.to_offset from oncebox.ledger as l
               where l.cursor = c.id and l.day = k.day order by l.from_offset desc limit 1) as last
        where not k.is_gone) as told on true;

-- Notes what is about to go with a day, once: see sql/admin/note_gone.sql. Not of one that an older binary has begun to drop: what was in
-- it cannot be looked at any more.
create function oncebox.note_gone(of_day date) returns boolean
language plpgsql set jit = off as $$
begin
    insert into oncebox.kept_day as k (day, is_gone)
    select w.day, true from oncebox.whole_day as w where w.day = of_day
        on conflict (day) do update set is_gone = true where not k.is_gone;
    if not found then
        return false;
    end if;
    insert into oncebox.gone as g (cursor, offsets, completed, cancelled, discarded)
    select c.id, coalesce(told.offsets, '{}'),
           coalesce(ends.events, 0) - coalesce(remarks.cancelled, 0) - coalesce(remarks.discarded, 0),
           coalesce(remarks.cancelled, 0), coalesce(remarks.discarded, 0)
      from oncebox.cursor as c
      left join (select l.cursor, int8multirange(int8range(min(l.from_offset), max(l.to_offset))) as offsets
                   from oncebox.ledger as l where l.day = of_day group by l.cursor) as told on told.cursor = c.id
      left join (select e.cursor, sum(bit_count(e.bits::bit(64)))::bigint as events
                   from oncebox.ended as e where e.day = of_day group by e.cursor) as ends on ends.cursor = c.id
      left join (select m.cursor, count(*) filter (where m.state = 'cancelled') as cancelled,
                        count(*) filter (where m.state = 'discarded') as discarded
                   from oncebox.remark as m where m.day = of_day group by m.cursor) as remarks on remarks.cursor = c.id
     where told.cursor is not null or ends.cursor is not null
     order by c.id
        on conflict (cursor) do update
       set offsets = g.offsets + excluded.offsets, completed = g.completed + excluded.completed,
           cancelled = g.cancelled + excluded.cancelled, discarded = g.discarded + excluded.discarded;
    return true;
end
$$;

-- The function of 0010_days.sql, which keeps the list of days.
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
                execute format(
                    'alter table oncebox.%I set (autovacuum_analyze_scale_factor = 1, autovacuum_vacuum_insert_threshold = -1)',
                    partition_name);
                if parent = 'outbox' then
                    execute format(
                        'alter table oncebox.%I alter column body set storage external, alter column body set statistics 0, '
                        || 'alter column key set statistics 0',
                        partition_name);
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
        insert into oncebox.kept_day (day) values (partition_day) on conflict do nothing;
    end loop;
    return made;
end
$$;

update oncebox.schema_version set version = 15;
