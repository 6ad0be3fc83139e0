-- Write down deliveries. Called by outbox::settle::completed, in batches, possibly again after a lost reply.
-- $1 cursors, $2 offsets, $3 indexes, $4 generations, $5 days, $6 sends, $7 statuses, $8 fences, $9 body bytes,
-- $10 whether the attempt was a retry's, $11 process. Rows come sorted by place.
-- A 2xx needs only that the event is not terminal, whoever holds the lease: the first row in done stands. late says
-- that the lease or epoch under which it was sent was no longer current. Counters move with the rows they count.
-- Index: primary keys. Delivery rows are locked in cursor order.
with durable as materialized (
    select set_config('synchronous_commit',
                      case current_setting('synchronous_commit') when 'off' then 'on'
                           else current_setting('synchronous_commit') end, true) as level
),
answered as materialized (
    select a.cursor, a.record_offset, a.event_index, a.generation, a.day, a.sends, a.status, a.fence, a.bytes,
           a.retried
      from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
           as a (cursor, record_offset, event_index, generation, day, sends, status, fence, bytes, retried)
     cross join durable
),
locked as materialized (
    select d.cursor, d.epoch = any($8) and d.owner = $11 and d.lease_until > clock_timestamp() as held, d.epoch
      from oncebox.delivery as d where d.cursor = any($1) order by d.cursor for update
),
cleared as (
    delete from oncebox.retry as r
     using answered as a
     where r.cursor = a.cursor and r.record_offset = a.record_offset
       and r.event_index = a.event_index and r.generation = a.generation
 returning r.cursor, r.record_offset, r.event_index, r.generation, r.fence
),
finished as (
    insert into oncebox.done (cursor, record_offset, event_index, generation, day, state, sends, status, at)
    select a.cursor, a.record_offset, a.event_index, a.generation, a.day, 'completed', a.sends, a.status,
           clock_timestamp()
      from answered as a
        on conflict do nothing
 returning cursor, record_offset, event_index, generation
),
judged as (
    select a.cursor, a.record_offset, a.event_index, a.generation, a.bytes,
           f.cursor is not null as first,
           case when a.retried then c.fence is distinct from a.fence
                else not (coalesce(locked.held, false) and locked.epoch = a.fence) end as late
      from answered as a
      left join finished as f using (cursor, record_offset, event_index, generation)
      left join cleared as c using (cursor, record_offset, event_index, generation)
      left join locked on locked.cursor = a.cursor
),
counted as (
    update oncebox.delivery as d
       set completed = d.completed + sums.events, settled_bytes = d.settled_bytes + sums.bytes
      from (select cursor, count(*) as events, sum(bytes)::bigint as bytes from judged where first group by cursor)
           as sums
     where d.cursor = sums.cursor
)
select cursor, record_offset, event_index, generation, first, late from judged;
