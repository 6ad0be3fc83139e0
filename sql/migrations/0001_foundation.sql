-- The first schema. Run by outbox::migrate in one transaction; `oncebox.` is replaced by the configured schema.
--
-- What must hold: an event's place (cursor, record_offset, event_index, generation) is its identity in every table;
-- `outbox` is only inserted into; `done` alone says that an event is terminal; `retry` has a row only for events that
-- need a life of their own. `day` is the day an event was stored, carried along, and files its rows in every table.

create schema if not exists oncebox;

-- version: what this schema is. oldest_binary: the oldest schema version a binary may know and still work with it.
create table oncebox.schema_version (
    only_row boolean primary key default true check (only_row),
    version integer not null,
    oldest_binary integer not null
);

-- What operators and the system decided about a workflow; the same for all processes. Sending and reading stop for
-- reasons of their own: `state` is about sending, `halted` says why records are not read.
create table oncebox.workflow (
    id text primary key,
    state text not null default 'running',
    reason text,
    halted text,
    -- The configuration's own `paused`.
    paused boolean not null default false,
    -- The configuration that it runs with: that of the process that started last.
    version bigint,
    changed_at timestamptz not null default clock_timestamp(),
    changed_by text not null default 'oncebox',
    -- Not configured any more, and an operator wants what is left of it delivered.
    draining boolean not null default false,
    -- The id under which everything of this one lives on.
    renamed_to text,
    -- Since when nothing is sent, and for how long that was so before, in all: give-up times stand still meanwhile.
    stopped_at timestamptz,
    stopped interval not null default interval '0',
    -- Up to when open circuits are in that account, whichever process had one.
    circuit_accounted_to timestamptz,
    constraint known_state check (state in ('running', 'paused', 'suspended', 'removed')),
    constraint a_stop_has_a_reason check (state = 'running' or reason is not null)
);

-- Keeps the account of stopped time, whichever statement stops or starts a workflow.
create function oncebox.account_stops() returns trigger
language plpgsql as $$
begin
    if new.state <> 'running' or new.paused then
        new.stopped_at := coalesce(old.stopped_at, clock_timestamp());
    elsif old.stopped_at is not null then
        new.stopped := old.stopped + (clock_timestamp() - old.stopped_at);
        new.stopped_at := null;
    end if;
    return new;
end
$$;

create trigger account_stops before update of state, paused on oncebox.workflow
    for each row execute function oncebox.account_stops();

-- Processes that said a moment ago that they are there, and what they run: they share what a workflow may have at once.
create table oncebox.process (
    id uuid primary key,
    workflows text[] not null,
    seen_at timestamptz not null
) with (fillfactor = 50);

-- Workflow configurations as written, references unresolved. The version is part of its SHA-256.
create table oncebox.configuration (
    version bigint primary key,
    workflow text not null,
    document text not null,
    first_seen_at timestamptz not null default clock_timestamp()
);

-- One row per workflow and incarnation of a topic's partition: the truth about what was read.
create table oncebox.cursor (
    id bigint primary key,
    workflow text not null,
    cluster text not null,
    topic text not null,
    topic_id text not null,
    partition integer not null,
    start_offset bigint not null,
    -- The next offset to read. Moves only in the statement that stores what was read; on the direct path see below.
    next_offset bigint not null,
    -- First attempts below this offset belong to the delivery owner; those from it on were never sent.
    claimed_to bigint not null,
    -- The generation that appended events get; an operator's rewind raises it by 1000.
    generation integer not null default 0,
    owner uuid,
    owner_epoch bigint not null default 0,
    -- A copy of delivery.epoch, changed with it: whoever moves claimed_to is fenced on this row's own lock.
    delivery_epoch bigint not null default 0,
    -- How often the partition was taken at one offset without a clean release: a record that kills shows here.
    taken_offset bigint,
    taken_times integer not null default 0,
    -- The record that was being read alone when the process died.
    suspect_offset bigint,
    suspect_times integer not null default 0,
    appended bigint not null default 0,
    appended_bytes bigint not null default 0,
    -- Read without the outbox: next_offset is a copy of the offset that is marked in Kafka, never ahead of it by an event
    -- that is neither delivered nor stored.
    direct boolean not null default false,
    -- Marks in Kafka of another era are not believed: an operator moved the cursor since, or the database failed over.
    mark_era bigint not null default 0,
    -- The database's timeline when the copy was last known to be whole.
    timeline text,
    -- When its owner last said that it is there, on the direct path.
    copied_at timestamptz,
    constraint one_cursor_per_incarnation unique (workflow, cluster, topic_id, partition),
    constraint claimed_before_read check (claimed_to <= next_offset)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);

create index cursor_topic on oncebox.cursor (workflow, topic);

-- Who delivers a cursor's events, and how far they are settled.
create table oncebox.delivery (
    cursor bigint primary key references oncebox.cursor (id),
    workflow text not null,
    owner uuid,
    epoch bigint not null default 0,
    lease_until timestamptz,
    -- Whether its owner keeps order: then of each lane only the first event that is not settled can have been sent.
    ordered boolean not null default false,
    -- The database's timeline when the delivery was taken: another one means that it failed over since.
    timeline text,
    -- Every event below this offset is in done or in retry. Moved lazily.
    settled_to bigint not null,
    completed bigint not null default 0,
    cancelled bigint not null default 0,
    discarded bigint not null default 0,
    -- Appended and never stored: the source had published them before.
    suppressed bigint not null default 0,
    settled_bytes bigint not null default 0,
    constraint an_owner_has_a_lease check ((owner is null) = (lease_until is null))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);

create index delivery_workflow on oncebox.delivery (workflow);

-- Events and their bytes. Only inserted into.
create table oncebox.outbox (
    cursor bigint not null,
    record_offset bigint not null,
    event_index integer not null,
    generation integer not null,
    day date not null,
    -- It went to retry as it was stored, to wait for its time: no claim of waiting events covers it.
    delayed boolean not null default false,
    key text not null,
    event_type text not null,
    content_type text not null,
    traceparent text,
    source_at bigint,
    created_at timestamptz not null,
    config_version bigint not null,
    -- Whose order it keeps, on its cursor; null: nobody's.
    lane bigint,
    body bytea not null,
    primary key (cursor, record_offset, event_index, generation, day)
) partition by range (day);

alter table oncebox.outbox alter column body set storage external;

-- Terminal events. Whoever inserts first decides.
create table oncebox.done (
    cursor bigint not null,
    record_offset bigint not null,
    event_index integer not null,
    generation integer not null,
    day date not null,
    state text not null,
    sends integer not null,
    status integer,
    body_bytes integer not null default 0,
    at timestamptz not null,
    primary key (cursor, record_offset, event_index, generation, day),
    constraint known_state check (state in ('completed', 'cancelled', 'discarded'))
) partition by range (day);

-- Attempts that did not deliver at once.
create table oncebox.attempt (
    cursor bigint not null,
    record_offset bigint not null,
    event_index integer not null,
    generation integer not null,
    day date not null,
    send integer not null,
    fence bigint not null,
    at timestamptz not null,
    outcome text not null,
    status integer,
    error text,
    answer bytea,
    millis integer not null,
    primary key (cursor, record_offset, event_index, generation, send, day)
) partition by range (day);

-- What became of the records of each append that made no event, as ranges of offsets.
create table oncebox.ledger (
    cursor bigint not null,
    from_offset bigint not null,
    to_offset bigint not null,
    generation integer not null,
    day date not null,
    events integer not null,
    dead integer not null,
    filtered int8multirange not null,
    tombstones int8multirange not null,
    -- Records all of whose events were suppressed as repeats.
    suppressed int8multirange not null,
    primary key (cursor, from_offset, generation, day),
    constraint a_range check (from_offset < to_offset)
) partition by range (day);

-- Changes that were seen, where a workflow suppresses repeats. The place is that of the first.
create table oncebox.seen (
    workflow text not null,
    fingerprint bytea not null,
    cursor bigint not null,
    record_offset bigint not null,
    event_index integer not null,
    expires_at timestamptz not null,
    primary key (workflow, fingerprint)
) partition by hash (workflow, fingerprint);

create index seen_expiry on oncebox.seen (expires_at);

do $$
begin
    for part in 0..7 loop
        execute format(
            'create table oncebox.seen_%s partition of oncebox.seen for values with (modulus 8, remainder %s)', part, part);
    end loop;
end
$$;

-- Events that need a life of their own: to be tried again, held, replayed, or taken over in doubt.
create table oncebox.retry (
    cursor bigint not null,
    record_offset bigint not null,
    event_index integer not null,
    generation integer not null,
    day date not null,
    workflow text not null,
    state text not null,
    sends integer not null,
    counted integer not null,
    fence bigint not null,
    -- When it may be sent; for an active row, when its lease ends: both come back through one index.
    due timestamptz not null,
    leased_by uuid,
    lease_until timestamptz,
    in_doubt boolean not null,
    held text,
    first_attempt_at timestamptz,
    -- How long the workflow had been stopped when the row was made: what was stopped since does not count as waiting.
    stopped interval not null default interval '0',
    -- The event's own time, for its age.
    event_at timestamptz not null,
    lane bigint,
    primary key (cursor, record_offset, event_index, generation),
    constraint known_state check (state in ('scheduled', 'available', 'active', 'retryable', 'pending')),
    constraint active_rows_have_a_lease check (
        (state = 'active') = (leased_by is not null and lease_until is not null)),
    constraint held_rows_say_why check ((state = 'pending') = (held is not null))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

create index retry_due on oncebox.retry (workflow, due) where state <> 'pending';
create index retry_state on oncebox.retry (workflow, state);
create index retry_age on oncebox.retry (workflow, event_at);
create index retry_replayed on oncebox.retry (cursor, lane) where lane is not null and generation % 1000 > 0;
create index retry_let_go on oncebox.retry (cursor, lane) where lane is not null and state <> 'pending';
create index retry_lane on oncebox.retry (cursor, lane, record_offset, event_index, generation) where lane is not null;

-- Events of the direct path that are stored because an attempt failed: not to be sent again by whoever reads on.
create table oncebox.spilled (
    cursor bigint not null,
    record_offset bigint not null,
    event_index integer not null,
    generation integer not null,
    day date not null,
    at timestamptz not null default clock_timestamp(),
    primary key (cursor, record_offset, event_index, generation)
);

create index spilled_at on oncebox.spilled (at);

-- Events that Oncebox has stopped trying to deliver, complete in themselves.
create table oncebox.dead_letter (
    cursor bigint not null,
    record_offset bigint not null,
    event_index integer not null,
    generation integer not null,
    day date not null,
    workflow text not null,
    topic text not null,
    partition integer not null,
    reason text not null,
    detail text,
    key text,
    event_type text,
    content_type text,
    traceparent text,
    source_at bigint,
    config_version bigint not null,
    body bytea,
    -- The record's own key and headers, for a record that could not be made into events.
    record_key bytea,
    record_headers json,
    sends integer not null,
    fence bigint not null,
    attempts json not null,
    first_attempt_at timestamptz,
    last_attempt_at timestamptz,
    -- An answer 2xx that came after the event was given up.
    late_success_at timestamptz,
    lane bigint,
    -- The later events of its lane wait until it is replayed.
    blocks boolean not null default false,
    created_at timestamptz not null default clock_timestamp(),
    primary key (cursor, record_offset, event_index, generation),
    constraint known_reason check (reason in (
        'exhausted', 'expired', 'rejected', 'invalid', 'duplicate', 'in_doubt', 'too_large', 'parked'))
);

create index dead_letter_workflow on oncebox.dead_letter (workflow, created_at);
create index dead_letter_blocks on oncebox.dead_letter (cursor, lane) where blocks;
create index dead_letter_blocked on oncebox.dead_letter (workflow) where blocks;

-- Offsets that were never read, and why.
create table oncebox.gap (
    cursor bigint not null,
    from_offset bigint not null,
    to_offset bigint not null,
    reason text not null,
    action text not null,
    at timestamptz not null default clock_timestamp(),
    primary key (cursor, from_offset, reason, at),
    constraint known_reason check (reason in ('retention', 'beyond_end', 'topic_recreated', 'operator'))
);

-- Who changed what by hand.
create table oncebox.audit (
    at timestamptz not null default clock_timestamp(),
    who text not null,
    action text not null,
    workflow text,
    detail text
);

create index audit_at on oncebox.audit (at);

-- Makes the day partitions from yesterday to some days ahead. Called by outbox::partitions in every process; the lock
-- lets one do it at a time, and attaching a finished table does not block inserts.
create function oncebox.make_partitions(days_ahead integer) returns integer
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
        select (timezone('utc', clock_timestamp())::date + step) from generate_series(-1, days_ahead) as step
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

select oncebox.make_partitions(7);

insert into oncebox.schema_version (version, oldest_binary) values (1, 1);
