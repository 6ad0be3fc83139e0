-- What each process does: only those that send have a share of what a workflow may do at once, and are given events to deliver. Run by
-- outbox::migrate in one transaction; `oncebox.` is replaced by the configured schema.
--
-- A binary that does not know these columns does everything.

alter table oncebox.process add column sends boolean not null default true;
alter table oncebox.process add column reads boolean not null default true;
-- The workflows that it takes deliveries of: not those that it is about to end, or stands by for. Null: a binary that cannot tell.
alter table oncebox.process add column takes text[];

-- The processes that deliver for a workflow, in their turns. `apart`: some that run it only read or only send, so that those that send
-- take turns with its cursors instead of following who reads them. A binary that knows nothing of turns follows who reads: as long as
-- one is there, everybody does.
create function oncebox.senders(of_workflow text, gone_after double precision)
returns table (id uuid, turn bigint, many bigint, apart boolean)
language sql stable as $$
    select s.id, row_number() over (order by s.since, s.id) - 1, count(*) over (), s.apart
      from (select p.id, p.since, p.sends and of_workflow = any(coalesce(p.takes, p.workflows)) as takes,
                   bool_or(p.reads <> p.sends) over () and bool_and(p.takes is not null) over () as apart
              from oncebox.process as p
             where of_workflow = any(p.workflows) and p.seen_at > clock_timestamp() - make_interval(secs => gone_after)) as s
     where s.takes
$$;

-- Which of them it is, of so many: spreads the partitions of one topic evenly, and topics of one partition at random.
create function oncebox.turn_of(workflow text, topic text, partition integer, many bigint) returns bigint
language sql immutable as $$
    select (partition + (hashtext(workflow || ' ' || topic) & 65535)) % many
$$;

update oncebox.schema_version set version = 13;
