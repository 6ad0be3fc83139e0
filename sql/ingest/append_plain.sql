-- Store what was read from several partitions, each all or nothing: the common case of append.sql, without records that make no
-- event, without suppressed repeats and without a delay. Called by outbox::append.
--
-- $1 process
-- $2 cursors, $3 owner epochs, $4 expected offsets, $5 new offsets, $6 delivery epochs (-1: do not claim),
-- $7 event counts, $8 event bytes, $9 filtered ranges, $10 tombstone ranges
-- events: $11 cursors, $12 offsets, $13 indexes, $14 keys, $15 types, $16 content types, $17 traceparents,
--         $18 source times, $19 config versions, $20 bodies, $21 lanes
--
-- The rows hang on the cursor, never the other way round: see append.sql, whose fences these are. Each body is copied once on its
-- way from the parameters to its page; the general statement copies it three times. Index: primary key.
with durable as (
    select set_config('synchronous_commit',
                      case current_setting('synchronous_commit') when 'off' then 'on'
                           else current_setting('synchronous_commit') end, true) as level,
           timezone('utc', clock_timestamp())::date as day
),
locked as materialized (
    select id from oncebox.cursor where id = any($2) order by id for update
),
moved as (
    update oncebox.cursor as c
       set next_offset = b.next_offset,
           claimed_to = case when c.delivery_epoch = b.delivery_epoch and c.claimed_to = b.expected
                             then b.next_offset else c.claimed_to end,
           appended = c.appended + b.events,
           appended_bytes = c.appended_bytes + b.bytes
      from locked
      join unnest($2, $3, $4, $5, $6, $7, $8)
           as b (id, owner_epoch, expected, next_offset, delivery_epoch, events, bytes) on b.id = locked.id
     where c.id = locked.id and c.owner = $1 and c.owner_epoch = b.owner_epoch and c.next_offset = b.expected
 returning c.id, c.generation, c.next_offset, c.claimed_to, b.expected, b.events
),
stored as (
    insert into oncebox.outbox
           (cursor, record_offset, event_index, generation, day, key, event_type, content_type, traceparent, source_at,
            created_at, config_version, lane, body)
    select e.cursor, e.record_offset, e.event_index, moved.generation, durable.day, e.key, e.event_type, e.content_type,
           e.traceparent, e.source_at, clock_timestamp(), e.config_version, e.lane, e.body
      from unnest($11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
           as e (cursor, record_offset, event_index, key, event_type, content_type, traceparent, source_at,
                 config_version, body, lane)
      join moved on moved.id = e.cursor
     cross join durable
),
noted as (
    insert into oncebox.ledger
           (cursor, from_offset, to_offset, generation, day, events, dead, filtered, tombstones, suppressed)
    select moved.id, moved.expected, moved.next_offset, moved.generation, durable.day, moved.events, 0,
           l.filtered::int8multirange, l.tombstones::int8multirange, '{}'
      from moved
      join unnest($2, $9, $10) as l (id, filtered, tombstones) on l.id = moved.id
     cross join durable
)
select moved.id, moved.claimed_to = moved.next_offset as claimed, moved.generation, durable.day,
       null::bigint as left_offset, null::integer as left_index, null::boolean as suppressed
  from moved
 cross join durable;
