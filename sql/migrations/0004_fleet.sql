-- What the processes of a fleet know of each other, and when a workflow was stopped last. Run by outbox::migrate in one transaction; `oncebox.` is replaced by the
-- configured schema.

-- Who came first, and what each has under way: one number for each of its workflows, in their order. A binary that does not
-- know these columns leaves the lists empty, which counts as nothing.
alter table oncebox.process
    add column since timestamptz not null default clock_timestamp(),
    add column under_way integer[] not null default '{}',
    add column firsts integer[] not null default '{}';

-- When sending was stopped last: an open circuit that outlasts a pause is not counted twice (sql/admin/account_circuit.sql).
alter table oncebox.workflow add column last_stop tstzrange;

create or replace function oncebox.account_stops() returns trigger
language plpgsql as $$
begin
    if new.state <> 'running' or new.paused then
        new.stopped_at := coalesce(old.stopped_at, clock_timestamp());
    elsif old.stopped_at is not null then
        new.stopped := old.stopped + (clock_timestamp() - old.stopped_at);
        new.last_stop := tstzrange(old.stopped_at, greatest(old.stopped_at, clock_timestamp()));
        new.stopped_at := null;
    end if;
    return new;
end
$$;

update oncebox.schema_version set version = 4;
