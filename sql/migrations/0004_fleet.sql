-- What the processes of a fleet know of each other. Run by outbox::migrate in one transaction; `oncebox.` is replaced by the
-- configured schema.

-- Who came first, and what each has under way: one number for each of its workflows, in their order. A binary that does not
-- know these columns leaves the lists empty, which counts as nothing.
alter table oncebox.process
    add column since timestamptz not null default clock_timestamp(),
    add column under_way integer[] not null default '{}',
    add column firsts integer[] not null default '{}';

update oncebox.schema_version set version = 4;
