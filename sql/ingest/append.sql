-- Store what was read from several partitions, each all or nothing. Called by outbox::append.
--
-- $1 process
-- $2 cursors, $3 owner epochs, $4 expected offsets, $5 new offsets, $6 delivery epochs (-1: do not claim),
-- $7 event counts, $8 event bytes, $9 dead records, $10 filtered ranges, $11 tombstone ranges
-- events: $12 cursors, $13 offsets, $14 indexes, $15 keys, $16 types, $17 content types, $18 traceparents,
--         $19 source times, $20 config versions, $21 bodies, $31 fingerprints (null: repeats are not suppressed),
--         $32 seconds for which a fingerprint is remembered, $33 lanes, $34 seconds after the record's time that it is due
-- dead:   $22 cursors, $23 offsets, $24 reasons, $25 details, $26 config versions, $27 values, $28 record keys,
--         $29 record headers, $30 source times
-- events that have a uniqueness key, as take_unique.sql decided about them: $35 fates (null: no key), the event that one waits for: $36 cursors,
--         $37 offsets, $38 indexes, $39 generations; $40 when due, in seconds since 1970 (null: now), $41 what to say of a duplicate
--
-- The rows hang on the cursor, never the other way round: a partition whose compare-and-swap fails (another owner,
-- another epoch, another offset) stores nothing and is missing from the answer. Rows are locked in id order first, so
-- the update sees each row's newest version. claimed_to moves along only when nothing waits before these events and
-- this process holds the delivery epoch, which is checked on the same locked row. Index: primary key.
-- An event whose fingerprint was seen is suppressed: not stored, noted in the ledger, and named in the answer. Two appends
-- with one fingerprint wait for each other on its row; rows are taken in order. The same place read again is no repeat.
-- An event that is not due yet goes to retry at once and is named too; where order is kept, each event of a workflow with a
-- delay does, to wait for its turn. A record's time in the future counts as now.
with durable as (
    select set_config('synchronous_commit',
                      case current_setting('synchronous_commit') when 'off' then 'on'
                           else current_setting('synchronous_commit') end, true) as level,
           oncebox.today() as day
),
locked as materialized (
    select id from oncebox.cursor where id = any($2) order by id for update
),
moved as (
    update oncebox.cursor as c
       set next_offset = b.next_offset,
           claimed_to = case when c.delivery_epoch = b.delivery_epoch and c.claimed_to = b.expected
                             then b.next_offset else c.claimed_to end,
           appended = c.appended + b.events + b.dead,
           appended_bytes = c.appended_bytes + b.bytes
      from locked
      join unnest($2, $3, $4, $5, $6, $7, $8, $9)
           as b (id, owner_epoch, expected, next_offset, delivery_epoch, events, bytes, dead) on b.id = locked.id
     where c.id = locked.id and c.owner = $1 and c.owner_epoch = b.owner_epoch and c.next_offset = b.expected
 returning c.id, c.workflow, c.topic, c.partition, c.generation, c.next_offset, c.claimed_to,
           b.expected, b.events, b.dead
),
fresh as (
    insert into oncebox.seen as s (workflow, fingerprint, cursor, record_offset, event_index, expires_at)
    select distinct on (moved.workflow, f.fingerprint)
           moved.workflow, f.fingerprint, f.cursor, f.record_offset, f.event_index,
           clock_timestamp() + make_interval(secs => f.seconds)
      from unnest($12, $13, $14, $31, $32) as f (cursor, record_offset, event_index, fingerprint, seconds)
      join moved on moved.id = f.cursor
     where f.fingerprint is not null
     order by moved.workflow, f.fingerprint, f.cursor, f.record_offset, f.event_index
        on conflict (workflow, fingerprint) do update
       set cursor = excluded.cursor, record_offset = excluded.record_offset, event_index = excluded.event_index,
           expires_at = excluded.expires_at
     where s.expires_at <= clock_timestamp()
        or (s.cursor = excluded.cursor and s.record_offset = excluded.record_offset
            and s.event_index = excluded.event_index)
 returning s.cursor, s.record_offset, s.event_index
),
events as materialized (
    select e.cursor, e.record_offset, e.event_index, e.key, e.event_type, e.content_type, e.traceparent, e.source_at,
           e.config_version, e.body, e.lane, e.fate, e.waits_cursor, e.waits_offset, e.waits_index, e.waits_generation, e.said,
           e.fate is not distinct from 'suppressed' or (e.fingerprint is not null and fresh.cursor is null) as suppressed,
           case when e.fate is not null and e.due is not null then to_timestamp(e.due)
                when e.delay > 0 then least(coalesce(to_timestamp(e.source_at / 1000.0), now.at), now.at)
                                      + make_interval(secs => e.delay)
                when e.fate is not null then now.at end as due
      from unnest($12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $31, $33, $34, $35, $36, $37, $38, $39, $40, $41)
           as e (cursor, record_offset, event_index, key, event_type, content_type, traceparent, source_at,
                 config_version, body, fingerprint, lane, delay, fate, waits_cursor, waits_offset, waits_index, waits_generation, due, said)
     cross join (select clock_timestamp() as at) as now
      left join fresh on fresh.cursor = e.cursor and fresh.record_offset = e.record_offset
                     and fresh.event_index = e.event_index
),
sorted as materialized (
    select e.*, e.fate is not null or (e.due is not null and (e.lane is not null or e.due > clock_timestamp())) as delayed
      from events as e
),
stored as (
    insert into oncebox.outbox
           (cursor, record_offset, event_index, generation, day, delayed, key, event_type, content_type, traceparent,
            source_at, created_at, config_version, lane, body)
    select e.cursor, e.record_offset, e.event_index, moved.generation, durable.day, e.delayed, e.key, e.event_type,
           e.content_type, e.traceparent, e.source_at, clock_timestamp(), e.config_version, e.lane, e.body
      from sorted as e
      join moved on moved.id = e.cursor
     cross join durable
     where not e.suppressed and e.fate is distinct from 'duplicate'
),
scheduled as (
    insert into oncebox.retry
           (cursor, record_offset, event_index, generation, day, workflow, state, sends, counted, fence, due, in_doubt,
            stopped, event_at, lane, held, waits_cursor, waits_offset, waits_index, waits_generation)
    select e.cursor, e.record_offset, e.event_index, moved.generation, durable.day, moved.workflow,
           case when e.fate = 'waits' or e.lane is not null then 'pending' when e.due > clock_timestamp() then 'scheduled' else 'available' end,
           0, 0, 0, e.due, false, (select w.stopped from oncebox.workflow as w where w.id = moved.workflow),
           coalesce(to_timestamp(e.source_at / 1000.0), clock_timestamp()), e.lane,
           case when e.fate = 'waits' then 'unique' when e.lane is not null then 'order' end,
           e.waits_cursor, e.waits_offset, e.waits_index, e.waits_generation
      from sorted as e
      join moved on moved.id = e.cursor
     cross join durable
     where e.delayed and not e.suppressed and e.fate is distinct from 'duplicate' and e.fate is distinct from 'cancelled'
 returning cursor, record_offset, event_index
),
suppressed as materialized (
    select e.cursor, e.record_offset, e.event_index, octet_length(e.body) as bytes
      from events as e
      join moved on moved.id = e.cursor
     where e.suppressed
),
repeats as materialized (
    select cursor, count(*)::int4 as events, sum(bytes)::int8 as bytes from suppressed group by cursor
),
parked as (
    insert into oncebox.dead_letter
           (cursor, record_offset, event_index, generation, day, workflow, topic, partition, reason, detail,
            source_at, config_version, body, record_key, record_headers, sends, fence, attempts)
    select d.cursor, d.record_offset, 0, moved.generation, durable.day, moved.workflow, moved.topic, moved.partition,
           d.reason, d.detail, d.source_at, d.config_version, d.value, d.record_key, d.record_headers::json, 0, 0, '[]'
      from unnest($22, $23, $24, $25, $26, $27, $28, $29, $30)
           as d (cursor, record_offset, reason, detail, config_version, value, record_key, record_headers, source_at)
      join moved on moved.id = d.cursor
     cross join durable
),
-- Not stored, or stored and replaced at once.
unwanted as materialized (
    select e.cursor, e.record_offset, e.event_index, moved.generation, durable.day, e.fate, octet_length(e.body) as bytes
      from events as e
      join moved on moved.id = e.cursor
     cross join durable
     where e.fate in ('duplicate', 'cancelled') and not e.suppressed
),
duplicates as (
    insert into oncebox.dead_letter
           (cursor, record_offset, event_index, generation, day, workflow, topic, partition, reason, detail, key, event_type,
            content_type, traceparent, source_at, config_version, body, sends, fence, attempts, lane)
    select e.cursor, e.record_offset, e.event_index, moved.generation, durable.day, moved.workflow, moved.topic, moved.partition,
           'duplicate', e.said, e.key, e.event_type, e.content_type, e.traceparent, e.source_at, e.config_version, e.body, 0, 0, '[]',
           e.lane
      from events as e
      join moved on moved.id = e.cursor
     cross join durable
     where e.fate = 'duplicate' and not e.suppressed
),
unwanted_of as materialized (
    select cursor, (count(*) filter (where fate = 'duplicate'))::int4 as duplicates,
           (count(*) filter (where fate = 'cancelled'))::int4 as cancelled, sum(bytes)::int8 as bytes
      from unwanted group by cursor
),
counted as materialized (
    select v.cursor, moved.dead + coalesce(unwanted_of.duplicates, 0) as dead, coalesce(unwanted_of.cancelled, 0) as cancelled,
           coalesce(repeats.events, 0) as repeats, coalesce(repeats.bytes, 0) + coalesce(unwanted_of.bytes, 0) as bytes
      from oncebox.delivery as v
      join moved on moved.id = v.cursor
      left join repeats on repeats.cursor = v.cursor
      left join unwanted_of on unwanted_of.cursor = v.cursor
     where moved.dead > 0 or repeats.events > 0 or unwanted_of.cursor is not null
     order by v.cursor
       for update of v
),
dead as materialized (
    select d.cursor, d.record_offset, 0 as event_index, moved.generation, durable.day
      from unnest($22, $23) as d (cursor, record_offset)
      join moved on moved.id = d.cursor
     cross join durable
     cross join (select count(*) from counted) as after_deliveries
     union all
    select u.cursor, u.record_offset, u.event_index, u.generation, u.day
      from unwanted as u
     cross join (select count(*) from counted) as after_deliveries
     where u.fate = 'duplicate'
),
replaced as materialized (
    select u.cursor, u.record_offset, u.event_index, u.generation, u.day
      from unwanted as u
     cross join (select count(*) from counted) as after_deliveries
     where u.fate = 'cancelled'
),
ended as materialized (
    select count(*)
      from oncebox.finish(
               array(select d.cursor from dead as d), array(select d.record_offset from dead as d),
               array(select d.event_index from dead as d), array(select d.generation from dead as d),
               array(select d.day from dead as d), 'discarded', array(select 0 from dead as d),
               array(select null::integer from dead as d)) as f
),
withdrawn as materialized (
    select count(*)
      from oncebox.finish(
               array(select r.cursor from replaced as r), array(select r.record_offset from replaced as r),
               array(select r.event_index from replaced as r), array(select r.generation from replaced as r),
               array(select r.day from replaced as r), 'cancelled', array(select 0 from replaced as r),
               array(select null::integer from replaced as r)) as f
),
discarded as (
    update oncebox.delivery as v
       set discarded = v.discarded + counted.dead, suppressed = v.suppressed + counted.repeats, cancelled = v.cancelled + counted.cancelled,
           settled_bytes = v.settled_bytes + counted.bytes
      from counted
     where v.cursor = counted.cursor
),
noted as (
    insert into oncebox.ledger
           (cursor, from_offset, to_offset, generation, day, events, dead, filtered, tombstones, suppressed)
    select moved.id, moved.expected, moved.next_offset, moved.generation, durable.day,
           moved.events - coalesce((select repeats.events from repeats where repeats.cursor = moved.id), 0), moved.dead,
           l.filtered::int8multirange, l.tombstones::int8multirange,
           coalesce((select range_agg(int8range(s.record_offset, s.record_offset + 1))
                       from suppressed as s
                      where s.cursor = moved.id
                        and not exists (
                            select 1 from events as e
                             where e.cursor = s.cursor and e.record_offset = s.record_offset and not e.suppressed)),
                    '{}')
      from moved
      join unnest($2, $10, $11) as l (id, filtered, tombstones) on l.id = moved.id
     cross join durable
)
select moved.id, moved.claimed_to = moved.next_offset as claimed, moved.generation, durable.day,
       null::bigint as left_offset, null::integer as left_index, null::boolean as suppressed
  from moved
 cross join durable
 cross join ended
 cross join withdrawn
 union all
select s.cursor, null, null, null, s.record_offset, s.event_index, true from suppressed as s
 union all
select u.cursor, null, null, null, u.record_offset, u.event_index, false from unwanted as u
 union all
select s.cursor, null, null, null, s.record_offset, s.event_index, false from scheduled as s;
