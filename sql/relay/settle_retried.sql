-- Write down deliveries of retries. Called by outbox::settle::retried, in batches, possibly again after a lost reply.
-- $1 cursors, $2 offsets, $3 indexes, $4 generations, $5 days, $6 sends, $7 statuses, $8 body bytes, $9 the cursors once
-- each, $10 fences. Rows come sorted by place.
-- As for first attempts, a 2xx needs only that the event is not terminal. The answer has the places that became done, and
-- the fence of each retry row: what was sent under another fence is late. A row that another attempt holds stays until that
-- one has ended, so that nothing that waits for it overtakes it. Index: primary keys. Delivery rows are locked in cursor
-- order.
with durable as materialized (
    select set_config('synchronous_commit',
                      case current_setting('synchronous_commit') when 'off' then 'on'
                           else current_setting('synchronous_commit') end, true) as level
),
locked as materialized (
    select d.cursor from oncebox.delivery as d where d.cursor = any($9) order by d.cursor for update
),
held as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation, r.fence,
           r.fence = a.fence or r.state <> 'active' as ends
      from oncebox.retry as r
      join unnest($1, $2, $3, $4, $10) as a (cursor, record_offset, event_index, generation, fence)
        on r.cursor = a.cursor and r.record_offset = a.record_offset
       and r.event_index = a.event_index and r.generation = a.generation
     cross join (select count(*) from locked) as after_deliveries
     order by r.cursor, r.record_offset, r.event_index, r.generation
       for update of r
),
cleared as (
    delete from oncebox.retry as r
     using held
     where r.cursor = held.cursor and r.record_offset = held.record_offset
       and r.event_index = held.event_index and r.generation = held.generation and held.ends
),
finished as (
    insert into oncebox.done
           (cursor, record_offset, event_index, generation, day, state, sends, status, body_bytes, at)
    select a.cursor, a.record_offset, a.event_index, a.generation, a.day, 'completed', a.sends, a.status, a.bytes,
           clock_timestamp()
      from unnest($1, $2, $3, $4, $5, $6, $7, $8)
           as a (cursor, record_offset, event_index, generation, day, sends, status, bytes)
     cross join durable
        on conflict do nothing
 returning cursor, record_offset, event_index, generation, body_bytes
),
counted as (
    update oncebox.delivery as d
       set completed = d.completed + sums.events, settled_bytes = d.settled_bytes + sums.bytes
      from (select finished.cursor, count(*) as events, sum(finished.body_bytes)::bigint as bytes
              from finished join locked on locked.cursor = finished.cursor group by finished.cursor) as sums
     where d.cursor = sums.cursor
)
select f.cursor, f.record_offset, f.event_index, f.generation, null::bigint as fence from finished as f
 union all
select h.cursor, h.record_offset, h.event_index, h.generation, h.fence from held as h;
