-- Forget uniqueness keys of events that have ended, a bounded number at a time. Called by outbox::unique::prune. $1 limit.
-- A key's own row goes with its last event; whoever waits for its lock meanwhile makes it anew. Index: unique_event_expiry.
with old as materialized (
    select e.workflow, e.fingerprint, e.cursor, e.record_offset, e.event_index, e.generation
      from oncebox.unique_event as e
     where e.expires_at <= (select clock_timestamp())
       and not exists (
           select 1 from oncebox.retry as r
            where r.cursor = e.cursor and r.record_offset = e.record_offset and r.event_index = e.event_index
              and r.generation = e.generation)
       -- Its replay asks for the key again.
       and not exists (
           select 1 from oncebox.dead_letter as l
            where l.cursor = e.cursor and l.record_offset = e.record_offset and l.event_index = e.event_index
              and l.generation = e.generation)
     order by e.expires_at
     limit $1
       for update skip locked
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
select 1 as forgotten from forgotten;
