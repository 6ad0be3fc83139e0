-- Partitions that are past their retention, as the statements that detach and drop them. Called by outbox::partitions.
-- One that was detached half or whole before a crash is finished: detach is then another statement, or nothing.
-- $1 days that bodies are kept, $2 days that records of events are kept.
-- An undelivered event is never dropped: an outbox day goes only when every cursor is settled past its events of that
-- day, and no retry or replay points into it; what is known of ends, attempts and reading goes no earlier than the outbox day they judge.
with days as (
    select c.oid, c.relname, split_part(c.relname, '_', 1) as parent, to_date(right(c.relname, 10), 'YYYY_MM_DD') as day,
           case when i.inhrelid is null then '' when i.inhdetachpending then 'finalize' else 'concurrently' end as way
      from pg_class as c
      left join pg_inherits as i on i.inhrelid = c.oid
     where c.relnamespace = (select relnamespace from pg_class where oid = 'oncebox.outbox'::regclass)
       and c.relkind = 'r' and c.relname ~ '^(outbox|ended|remark|attempt|ledger)_[0-9]{4}_[0-9]{2}_[0-9]{2}$'
),
old as (
    select d.relname, d.parent, d.day, d.way
      from days as d
     where (d.parent = 'outbox' and d.day < oncebox.today() - $1)
        or (d.parent <> 'outbox' and d.day < oncebox.today() - $2)
),
kept as (
    select distinct o.day
      from (select distinct day from old) as o
     where exists (select 1 from oncebox.retry as r where r.day = o.day)
        or exists (
           select 1
             from oncebox.delivery as v
             join oncebox.outbox as b on b.cursor = v.cursor and b.day = o.day and b.record_offset >= v.settled_to
            where not exists (
                  select 1 from oncebox.ended as f
                   where f.cursor = b.cursor and f.block = b.record_offset >> 6 and f.event_index = b.event_index
                     and f.generation = b.generation and f.day = b.day and oncebox.has(f.bits, b.record_offset)))
)
select old.parent, old.relname as name, old.day,
       case when old.way <> '' then
           format('alter table %s detach partition %s %s', 'oncebox.' || quote_ident(old.parent),
                  'oncebox.' || quote_ident(old.relname), old.way) end as detach,
       format('drop table %s', 'oncebox.' || quote_ident(old.relname)) as remove
  from old
 where not exists (select 1 from kept where kept.day = old.day)
   and (old.parent = 'outbox'
        or not exists (select 1 from days where days.parent = 'outbox' and days.day = old.day))
 order by old.day, old.parent <> 'ledger';
