-- What the last delivery owner had claimed and nobody has settled is in doubt: it goes to retry, one attempt counted.
-- Called by outbox::delivery::take, second statement, so that it sees all that was committed before the lock was had.
-- $1 cursor, $2 workflow, $3 settled_to, $4 claimed_to, $5 the new epoch: above the one these were sent under, so that
-- the fence never falls for a key. Index: primary keys, bounded by the range in every table.
with lost as materialized (
    select o.cursor, o.record_offset, o.event_index, o.generation, o.day,
           coalesce(to_timestamp(o.source_at / 1000.0), o.created_at) as event_at
      from oncebox.outbox as o
     where o.cursor = $1 and o.record_offset >= $3 and o.record_offset < $4
       and not exists (
           select 1 from oncebox.done as d
            where d.cursor = $1 and d.record_offset >= $3 and d.record_offset < $4
              and d.record_offset = o.record_offset and d.event_index = o.event_index
              and d.generation = o.generation and d.day = o.day)
       and not exists (
           select 1 from oncebox.retry as r
            where r.cursor = $1 and r.record_offset = o.record_offset
              and r.event_index = o.event_index and r.generation = o.generation)
),
doubted as (
    insert into oncebox.retry
           (cursor, record_offset, event_index, generation, day, workflow, state, sends, counted, fence, due, in_doubt,
            first_attempt_at, stopped, event_at)
    select l.cursor, l.record_offset, l.event_index, l.generation, l.day, $2, 'retryable', 1, 1, $5,
           clock_timestamp(), true, clock_timestamp(),
           (select w.stopped from oncebox.workflow as w where w.id = $2), l.event_at
      from lost as l
        on conflict do nothing
 returning cursor, record_offset, event_index, generation, day
),
recorded as (
    insert into oncebox.attempt
           (cursor, record_offset, event_index, generation, day, send, fence, at, outcome, error, millis)
    select cursor, record_offset, event_index, generation, day, 1, 0, clock_timestamp(), 'in_doubt',
           'the relay that held the event stopped before it settled it', 0
      from doubted
        on conflict do nothing
)
select count(*) as in_doubt from doubted;
