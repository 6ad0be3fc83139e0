-- What the last delivery owner had claimed and nobody has settled is in doubt: it goes to retry, one attempt counted.
-- Called by outbox::delivery::take, second statement, so that it sees all that was committed before the lock was had.
-- $1 cursor, $2 workflow, $3 settled_to, $4 claimed_to, $5 the new epoch: above the one these were sent under, so that
-- the fence never falls for an event. Where the last owner kept order, of a lane only the first can have been sent, and only if
-- no other event before it is stored: the others wait for their turn. What an operator replays meanwhile (a higher generation)
-- says nothing about that, but comes first. Index: primary keys, bounded by the range in every table.
with kept as materialized (
    select d.ordered from oncebox.delivery as d where d.cursor = $1
),
lost as materialized (
    select o.cursor, o.record_offset, o.event_index, o.generation, o.day, o.lane,
           coalesce(to_timestamp(o.source_at / 1000.0), o.created_at) as event_at,
           o.lane is null or not kept.ordered
           or row_number() over (partition by o.lane order by o.record_offset, o.event_index) = 1
              and not exists (
                  select 1 from oncebox.retry as r
                   where r.cursor = $1 and r.lane = o.lane and r.generation <= o.generation
                     and (r.record_offset, r.event_index) < (o.record_offset, o.event_index))
              and not exists (
                  select 1 from oncebox.dead_letter as b where b.cursor = $1 and b.lane = o.lane and b.blocks) as sent,
           o.lane is not null and kept.ordered
           and (row_number() over (partition by o.lane order by o.record_offset, o.event_index) > 1
                or exists (
                   select 1 from oncebox.retry as r
                    where r.cursor = $1 and r.lane = o.lane
                      and (r.record_offset, r.event_index) < (o.record_offset, o.event_index))
                or exists (
                   select 1 from oncebox.dead_letter as b where b.cursor = $1 and b.lane = o.lane and b.blocks)) as waits
      from oncebox.outbox as o
     cross join kept
     where o.cursor = $1 and o.record_offset >= $3 and o.record_offset < $4
       and not exists (
           select 1 from oncebox.ended as d
            where d.cursor = $1 and d.block >= $3 >> 6 and d.block <= $4 >> 6
              and d.block = o.record_offset >> 6 and d.event_index = o.event_index
              and d.generation = o.generation and d.day = o.day and oncebox.has(d.bits, o.record_offset))
       and not exists (
           select 1 from oncebox.retry as r
            where r.cursor = $1 and r.record_offset = o.record_offset
              and r.event_index = o.event_index and r.generation = o.generation)
),
doubted as (
    insert into oncebox.retry
           (cursor, record_offset, event_index, generation, day, workflow, state, sends, counted, fence, due, in_doubt,
            first_attempt_at, stopped, event_at, lane, held)
    select l.cursor, l.record_offset, l.event_index, l.generation, l.day, $2,
           case when l.waits then 'pending' else 'retryable' end, l.sent::int, l.sent::int, $5, clock_timestamp(), l.sent,
           case when l.sent then clock_timestamp() end,
           (select w.stopped from oncebox.workflow as w where w.id = $2), l.event_at, l.lane,
           case when l.waits then 'order' end
      from lost as l
        on conflict do nothing
 returning cursor, record_offset, event_index, generation, day, in_doubt
),
recorded as (
    insert into oncebox.attempt
           (cursor, record_offset, event_index, generation, day, send, fence, at, outcome, error, millis)
    select cursor, record_offset, event_index, generation, day, 1, 0, clock_timestamp(), 'in_doubt',
           'the relay that held the event stopped before it settled it', 0
      from doubted
     where in_doubt
        on conflict do nothing
)
select count(*) as in_doubt from doubted where in_doubt;
