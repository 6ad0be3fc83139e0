-- Lease events that are due again, and those whose lease ran out. Called by outbox::claim::retries.
-- $1 workflow, $2 process, $3 lease seconds, $4 limit, $5 whether what is in doubt is tried again,
-- $6 the cursors whose delivery this process holds, where order is kept; null: any. Index: retry_due.
-- Locks end with this statement, the lease guards the request. due becomes the lease's end, so that an expired lease is
-- found by the same search. Fence, sends and counted change before anything is sent. A row whose event is done already
-- (a late answer) is removed instead. age: since the first attempt, without the time for which the workflow was stopped.
-- The fence never falls and is never below the clock. The clock that bounds the search is a query of its own: asked anew for
-- each row, it could not be part of the index search, and whoever looks would pass through the whole backlog. offset 0 keeps the look into done a search for each row: as a join it
-- reads a whole day while nobody has counted that day's rows.
with due as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation, r.day, r.state = 'active' as expired
      from oncebox.retry as r
     where r.workflow = $1 and r.state <> 'pending' and r.due <= (select clock_timestamp())
       and ($5 or not (r.in_doubt or r.state = 'active'))
       and ($6::bigint[] is null or r.cursor = any($6))
     order by r.due
     limit $4
       for update skip locked
),
paused as materialized (
    select stopped from oncebox.workflow where id = $1
),
finished as materialized (
    select due.cursor, due.record_offset, due.event_index, due.generation
      from due
     where exists (
           select 1 from oncebox.done as d
            where d.cursor = due.cursor and d.record_offset = due.record_offset
              and d.event_index = due.event_index and d.generation = due.generation and d.day = due.day
            offset 0)
),
removed as (
    delete from oncebox.retry as r
     using finished as f
     where r.cursor = f.cursor and r.record_offset = f.record_offset
       and r.event_index = f.event_index and r.generation = f.generation
),
lost as (
    insert into oncebox.attempt
           (cursor, record_offset, event_index, generation, day, send, fence, at, outcome, error, millis)
    select r.cursor, r.record_offset, r.event_index, r.generation, r.day, r.sends, r.fence, r.lease_until, 'in_doubt',
           'the relay that held the event stopped before it settled it', 0
      from oncebox.retry as r
      join due on due.cursor = r.cursor and due.record_offset = r.record_offset
              and due.event_index = r.event_index and due.generation = r.generation and due.expired
        on conflict do nothing
),
claimed as (
    update oncebox.retry as r
       set state = 'active',
           leased_by = $2,
           lease_until = clock_timestamp() + make_interval(secs => $3),
           due = clock_timestamp() + make_interval(secs => $3),
           sends = r.sends + 1,
           counted = r.counted + 1,
           fence = greatest(r.fence + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint),
           first_attempt_at = coalesce(r.first_attempt_at, clock_timestamp()),
           stopped = case when r.first_attempt_at is null then paused.stopped else r.stopped end,
           in_doubt = r.in_doubt or due.expired
      from due
     cross join paused
     where r.cursor = due.cursor and r.record_offset = due.record_offset
       and r.event_index = due.event_index and r.generation = due.generation
       and not exists (
           select 1 from finished as f
            where f.cursor = r.cursor and f.record_offset = r.record_offset
              and f.event_index = r.event_index and f.generation = r.generation)
 returning r.cursor, r.record_offset, r.event_index, r.generation, r.day, r.sends, r.counted, r.fence, r.in_doubt,
           extract(epoch from clock_timestamp() - r.first_attempt_at - (paused.stopped - r.stopped))::float8 as age,
           due.expired
)
select claimed.cursor, claimed.record_offset, claimed.event_index, claimed.generation, claimed.day, claimed.sends,
       claimed.counted, claimed.fence, claimed.age, claimed.expired, claimed.in_doubt, c.topic, c.partition, o.key, o.event_type,
       o.content_type, o.traceparent, o.source_at,
       (extract(epoch from o.created_at) * 1000000)::bigint as stored_at, o.lane, o.body
  from claimed
  join oncebox.cursor as c on c.id = claimed.cursor
  join oncebox.outbox as o
    on o.cursor = claimed.cursor and o.record_offset = claimed.record_offset and o.event_index = claimed.event_index
   and o.generation = claimed.generation and o.day = claimed.day;
