-- Forget uniqueness keys of events that have ended, among some whose time is up. Called by outbox::unique::prune.
-- $1 how many are looked at; behind which it goes on, oldest first: $2 when its time was up, $3 cursor, $4 offset, $5 index, $6 generation.
-- Keys of dead letters are kept as long as these are, which may be for ever, and no look is to pass through all of them: what it costs is
-- bounded by $1, whatever it finds. The place in the answer is the last that was looked at, or null.
-- A key's own row goes with its last event; whoever waits for its lock meanwhile makes it anew. Index: unique_event_expiry, primary keys.
with looked_at as materialized (
    select e.workflow, e.fingerprint, e.cursor, e.record_offset, e.event_index, e.generation, e.expires_at
      from oncebox.unique_event as e
     where e.expires_at <= (select clock_timestamp()) and e.expires_at >= $2
       and (e.expires_at, e.cursor, e.record_offset, e.event_index, e.generation) > ($2, $3, $4, $5, $6)
     order by e.expires_at, e.cursor, e.record_offset, e.event_index, e.generation
     limit $1
),
old as materialized (
    select e.workflow, e.fingerprint, e.cursor, e.record_offset, e.event_index, e.generation
      from looked_at as l
     cross join lateral (
           select x.workflow, x.fingerprint, x.cursor, x.record_offset, x.event_index, x.generation
             from oncebox.unique_event as x
            where x.workflow = l.workflow and x.fingerprint = l.fingerprint and x.cursor = l.cursor
              and x.record_offset = l.record_offset and x.event_index = l.event_index and x.generation = l.generation
              for update skip locked) as e
     where not exists (
           select 1 from oncebox.retry as r
            where r.cursor = l.cursor and r.record_offset = l.record_offset and r.event_index = l.event_index
              and r.generation = l.generation
           offset 0)
       -- Its replay asks for the key again.
       and not exists (
           select 1 from oncebox.dead_letter as d
            where d.cursor = l.cursor and d.record_offset = l.record_offset and d.event_index = l.event_index
              and d.generation = l.generation
           offset 0)
),
forgotten as (
    delete from oncebox.unique_event as e
     using old
     where e.workflow = old.workflow and e.fingerprint = old.fingerprint and e.cursor = old.cursor
       and e.record_offset = old.record_offset and e.event_index = old.event_index and e.generation = old.generation
 returning e.workflow, e.fingerprint
),
free as materialized (
    select k.workflow, k.fingerprint
      from oncebox.unique_key as k
     where (k.workflow, k.fingerprint) in (select f.workflow, f.fingerprint from forgotten as f)
       and not exists (
           select 1 from oncebox.unique_event as e
            where e.workflow = k.workflow and e.fingerprint = k.fingerprint
              and not exists (
                  select 1 from old
                   where old.workflow = e.workflow and old.fingerprint = e.fingerprint and old.cursor = e.cursor
                     and old.record_offset = e.record_offset and old.event_index = e.event_index
                     and old.generation = e.generation))
       for update skip locked
),
cleared as (
    delete from oncebox.unique_key as k using free where k.workflow = free.workflow and k.fingerprint = free.fingerprint
)
select (select count(*) from forgotten) as forgotten, (select count(*) from looked_at) as looked_at,
       last.expires_at, last.cursor, last.record_offset, last.event_index, last.generation
  from (select 1) as one
  left join (
       select l.expires_at, l.cursor, l.record_offset, l.event_index, l.generation
         from looked_at as l
        order by l.expires_at desc, l.cursor desc, l.record_offset desc, l.event_index desc, l.generation desc
        limit 1) as last on true;
