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

create index audit_workflow on oncebox.audit (workflow, at);

update oncebox.schema_version set version = 9;
