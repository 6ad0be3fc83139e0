-- What each process does: only those that send have a share of what a workflow may do at once, and are given events to deliver. Run by
-- outbox::migrate in one transaction; `oncebox.` is replaced by the configured schema.
--
-- A binary that does not know these columns does everything.

alter table oncebox.process add column sends boolean not null default true;
alter table oncebox.process add column reads boolean not null default true;
-- The workflows that it takes deliveries of: not those that it is about to end. Null: all of them.
alter table oncebox.process add column takes text[];

-- The processes that deliver for a workflow, in their turns: at most so many, the first ones. `apart`: some of them do not read, so that
-- whoever reads a cursor is not whoever delivers it.
create function oncebox.senders(of_workflow text, most bigint, gone_after double precision)
returns table (id uuid, turn bigint, many bigint, apart boolean)
language sql stable as $$
    select p.id, row_number() over (order by p.since, p.id) - 1, least(count(*) over (), most), bool_or(not p.reads) over ()
      from oncebox.process as p
     where p.sends and of_workflow = any(coalesce(p.takes, p.workflows))
       and p.seen_at > clock_timestamp() - make_interval(secs => gone_after)
$$;

-- Which of them it is, of so many: spreads the partitions of one topic evenly, and topics of one partition at random.
create function oncebox.turn_of(workflow text, topic text, partition integer, many bigint) returns bigint
language sql immutable as $$
    select (partition + (hashtext(workflow || ' ' || topic) & 65535)) % many
$$;

update oncebox.schema_version set version = 13;
