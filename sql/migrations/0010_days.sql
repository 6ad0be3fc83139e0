-- Days that are only added to are not vacuumed for it. Run by outbox::migrate in one transaction; `oncebox.` is replaced by the configured
-- schema.
--
-- A vacuum that follows inserts reads every body again and writes every page once more, for readers who look at most rows never and at
-- the others once. Days are dropped as a whole; long before their transaction ids grow old. Rows that are changed are cleaned up as before.

-- The function of 0009_operate.sql, with that setting.
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
    end loop;
    return made;
end
$$;

do $$
declare
    old record;
begin
    for old in
        select c.relname
          from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
         where i.inhparent in ('oncebox.outbox'::regclass, 'oncebox.ended'::regclass, 'oncebox.remark'::regclass,
                               'oncebox.attempt'::regclass, 'oncebox.ledger'::regclass)
    loop
        execute format('alter table oncebox.%I set (autovacuum_vacuum_insert_threshold = -1)', old.relname);
    end loop;
end
$$;

update oncebox.schema_version set version = 10;
