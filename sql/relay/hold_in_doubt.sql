-- Hold events whose last attempt is in doubt, until an operator says what became of them. Called by outbox::claim::retries
-- before it claims, when the workflow holds. $1 workflow, $2 limit. Index: retry_in_doubt.
-- These are events of a lost owner, and retries whose lease ran out; an attempt that ended in doubt is held as it is
-- settled. The fence rises, so that a stale holder cannot write them any more. One that is done already (a late answer) goes. offset 0
-- keeps the look into ended a search for each row, as in claim_retries.sql.
with due as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation, r.day, r.state = 'active' as expired
      from oncebox.retry as r
     where r.workflow = $1 and r.state <> 'pending' and r.due <= (select clock_timestamp())
       and (r.in_doubt or r.state = 'active')
     order by r.due
     limit $2
       for update skip locked
),
finished as materialized (
    select due.cursor, due.record_offset, due.event_index, due.generation
      from due
     where exists (
           select 1 from oncebox.ended as d
            where d.cursor = due.cursor and d.block = due.record_offset >> 6 and d.event_index = due.event_index
              and d.generation = due.generation and d.day = due.day and oncebox.has(d.bits, due.record_offset)
           offset 0)
),
removed as (
    delete from oncebox.retry as r
     using finished as f
     where r.cursor = f.cursor and r.record_offset = f.record_offset
       and r.event_index = f.event_index and r.generation = f.generation
)
update oncebox.retry as r
   set state = 'pending', held = 'in_doubt', in_doubt = true, leased_by = null, lease_until = null,
       fence = greatest(r.fence + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)
  from due
 where r.cursor = due.cursor and r.record_offset = due.record_offset
   and r.event_index = due.event_index and r.generation = due.generation
   and not exists (
       select 1 from finished as f
        where f.cursor = r.cursor and f.record_offset = r.record_offset
          and f.event_index = r.event_index and f.generation = r.generation)
returning due.expired;
