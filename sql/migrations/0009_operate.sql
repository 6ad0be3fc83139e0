-- What operators need: replays that outlive the process that runs them, and what became of dead letters. Run by outbox::migrate in
-- one transaction; `oncebox.` is replaced by the configured schema.

-- Dead letters that are to be delivered again, one after the other, by whichever process holds the lease.
create table oncebox.replay (
    id uuid primary key,
    -- Which: null is any. Letters that were written after the replay was asked for are not among them.
    workflow text,
    reason text,
    from_at timestamptz,
    to_at timestamptz not null,
    -- Another key for each, so that a receiver takes them for new events.
    new_key boolean not null,
    -- Also of at-most-once workflows.
    force boolean not null,
    -- At most so many a second; null: as fast as it goes.
    per_second double precision,
    state text not null default 'running',
    who text not null,
    created_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    -- How many there were, how many were made into events again, and how many could not be.
    total bigint not null,
    replayed bigint not null default 0,
    skipped bigint not null default 0,
    -- Why the last one that was skipped was.
    problem text,
    -- The place behind which it goes on.
    at_cursor bigint not null default -1,
    at_offset bigint not null default -1,
    at_index integer not null default -1,
    at_generation integer not null default -1,
    owner uuid,
    lease_until timestamptz,
    constraint known_state check (state in ('running', 'paused', 'cancelled', 'completed')),
    constraint a_rate_is_positive check (per_second > 0),
    constraint an_owner_has_a_lease check ((owner is null) = (lease_until is null))
);

create index replay_running on oncebox.replay (created_at) where state = 'running';
create index replay_age on oncebox.replay (created_at, id);

-- What became of the dead letter that an event ended as; null: it is there, or there never was one.
alter table oncebox.remark
    add column letter text,
    add constraint known_letter check (letter in ('replayed', 'discarded', 'expired'));

-- Of those that are gone already nobody knows more than that.
update oncebox.remark as r
   set letter = case when exists (select 1 from oncebox.outbox as o
                                   where o.cursor = r.cursor and o.record_offset = r.record_offset
                                     and o.generation = r.generation + 1) then 'replayed' else 'expired' end
 where r.state = 'discarded'
   and not exists (select 1 from oncebox.dead_letter as d
                    where d.cursor = r.cursor and d.record_offset = r.record_offset and d.event_index = r.event_index
                      and d.generation = r.generation);

-- Offsets that were read without the outbox, of which the ledger knows nothing: since when, and before.
alter table oncebox.cursor
    add column direct_since bigint,
    add column direct_ranges int8multirange not null default '{}';

update oncebox.cursor set direct_since = start_offset where direct;

-- Events that are stored, and where each stands: the eight states that users see. By place and day is how to ask.
create view oncebox.event as
select o.cursor, o.record_offset, o.event_index, o.generation, o.day, c.workflow, c.topic, c.partition, o.key, o.event_type,
       o.created_at,
       case when e.cursor is not null then coalesce(m.state, 'completed')
            when r.cursor is not null then r.state
            when o.record_offset < c.claimed_to then 'active'
            else 'available' end as state,
       case when e.cursor is not null then coalesce(m.sends, 1) else coalesce(r.sends, 0) end as sends,
       r.held, coalesce(r.in_doubt, false) as in_doubt, r.due, r.first_attempt_at
  from oncebox.outbox as o
  join oncebox.cursor as c on c.id = o.cursor
  left join oncebox.ended as e
    on e.cursor = o.cursor and e.block = o.record_offset >> 6 and e.event_index = o.event_index
   and e.generation = o.generation and e.day = o.day and oncebox.has(e.bits, o.record_offset)
  left join oncebox.remark as m
    on m.cursor = o.cursor and m.record_offset = o.record_offset and m.event_index = o.event_index
   and m.generation = o.generation and m.day = o.day
  left join oncebox.retry as r
    on r.cursor = o.cursor and r.record_offset = o.record_offset and r.event_index = o.event_index
   and r.generation = o.generation;

-- Dead letters of all workflows by age, and of one workflow by place.
create index dead_letter_age on oncebox.dead_letter (created_at, cursor, record_offset, event_index, generation);

create index dead_letter_reason on oncebox.dead_letter (workflow, reason, created_at);

-- Events that wait for an operator's word, among many that wait for their turn.
create index retry_held on oncebox.retry (workflow) where held = 'in_doubt';

create index audit_workflow on oncebox.audit (workflow, at);

-- The function of 0007_blocks.sql. A day that grows is looked at for statistics whenever it has doubled, not at each tenth: every look reads
-- thousands of bodies, and no plan hangs on what is found.
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
                execute format('alter table oncebox.%I set (autovacuum_analyze_scale_factor = 1)', partition_name);
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
        select c.relname, split_part(c.relname, '_', 1) as parent
          from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
         where i.inhparent in ('oncebox.outbox'::regclass, 'oncebox.ended'::regclass, 'oncebox.remark'::regclass,
                               'oncebox.attempt'::regclass, 'oncebox.ledger'::regclass)
    loop
        execute format('alter table oncebox.%I set (autovacuum_analyze_scale_factor = 1)', old.relname);
        if old.parent = 'outbox' then
            execute format('alter table oncebox.%I alter column body set statistics 0, alter column key set statistics 0', old.relname);
        end if;
    end loop;
end
$$;

update oncebox.schema_version set version = 9;
