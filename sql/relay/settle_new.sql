-- Write down deliveries of first attempts that nobody else has written down: the common case of settle_completed.sql. Called by
-- outbox::settle::completed, in batches. A place that is done already is an error, and the other statement is sent instead.
-- $1 cursors, $2 offsets, $3 indexes, $4 generations, $5 days, $6 statuses, $7 body bytes, $8 process,
-- $9 the cursors once each, $10 events of each, $11 body bytes of each. Rows come sorted by place.
-- The answer has the epoch of each delivery that this process still holds: what was sent under another is late. Without a look
-- for conflicts a row costs half. Index: primary keys. Delivery rows are locked in cursor order.
with durable as materialized (
    select set_config('synchronous_commit',
                      case current_setting('synchronous_commit') when 'off' then 'on'
                           else current_setting('synchronous_commit') end, true) as level
),
locked as materialized (
    select d.cursor, d.epoch, d.owner = $8 and d.lease_until > clock_timestamp() as held
      from oncebox.delivery as d where d.cursor = any($9) order by d.cursor for update
),
finished as (
    insert into oncebox.done
           (cursor, record_offset, event_index, generation, day, state, sends, status, body_bytes, at)
    select a.cursor, a.record_offset, a.event_index, a.generation, a.day, 'completed', 1, a.status, a.bytes,
           clock_timestamp()
      from unnest($1, $2, $3, $4, $5, $6, $7)
           as a (cursor, record_offset, event_index, generation, day, status, bytes)
     cross join durable
),
counted as (
    update oncebox.delivery as d
       set completed = d.completed + sums.events, settled_bytes = d.settled_bytes + sums.bytes
      from unnest($9, $10, $11) as sums (cursor, events, bytes)
      join locked on locked.cursor = sums.cursor
     where d.cursor = sums.cursor
)
select l.cursor, l.epoch from locked as l where l.held;
