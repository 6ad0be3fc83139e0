-- Write down deliveries of first attempts. Called by outbox::settle::completed, in batches, possibly again after a lost
-- reply. $1 cursors, $2 offsets, $3 indexes, $4 generations, $5 statuses, $6 body bytes, $7 process,
-- $8 the cursors once each. Rows come sorted by place.
-- A 2xx needs only that the event is not terminal, whoever holds the lease: the first end stands, and is in the
-- answer. The answer also has the epoch of each delivery that this process still holds: what was sent under another is
-- late. Counters move with the rows they count. A retry row that a take-over has made meanwhile is removed by
-- clear_done.sql or the next claim. The day is the one that the event is stored under: after a failover that lost commits it may be
-- stored anew, under another day than its sender knows, or not be there; then nothing is written, and it is sent again. Each is
-- looked up by itself: the row estimates of a join by place make plans that cost more than the writing. Index: primary keys.
-- Delivery rows are locked in cursor order.
with durable as materialized (
    select set_config('synchronous_commit',
                      case current_setting('synchronous_commit') when 'off' then 'on'
                           else current_setting('synchronous_commit') end, true) as level
),
locked as materialized (
    select d.cursor, d.epoch,
           d.owner = $7 and d.lease_until > clock_timestamp()
           and d.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) as held
      from oncebox.delivery as d where d.cursor = any($8) order by d.cursor for update
),
ending as materialized (
    select a.cursor, a.record_offset, a.event_index, a.generation, stored.day, a.status, a.bytes
      from unnest($1, $2, $3, $4, $5, $6) as a (cursor, record_offset, event_index, generation, status, bytes)
     cross join durable
     cross join (select count(*) from locked) as after_deliveries
     cross join lateral (
           select o.day from oncebox.outbox as o
            where o.cursor = a.cursor and o.record_offset = a.record_offset and o.event_index = a.event_index
              and o.generation = a.generation
            limit 1) as stored
),
finished as materialized (
    select f.cursor, f.record_offset, f.event_index, f.generation, e.bytes
      from oncebox.finish(
               array(select e.cursor from ending as e), array(select e.record_offset from ending as e),
               array(select e.event_index from ending as e), array(select e.generation from ending as e),
               array(select e.day from ending as e), 'completed', array(select 1 from ending as e),
               array(select e.status from ending as e)) as f
      join ending as e on e.cursor = f.cursor and e.record_offset = f.record_offset
                      and e.event_index = f.event_index and e.generation = f.generation
),
counted as (
    update oncebox.delivery as d
       set completed = d.completed + sums.events, settled_bytes = d.settled_bytes + sums.bytes
      from (select cursor, count(*) as events, sum(bytes)::bigint as bytes from finished group by cursor) as sums
     where d.cursor = sums.cursor
)
select f.cursor, f.record_offset, f.event_index, f.generation, null::bigint as epoch from finished as f
 union all
select l.cursor, null, null, null, l.epoch from locked as l where l.held;
