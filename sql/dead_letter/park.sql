-- Move one event to the dead letters. Called by outbox::settle::parked, possibly again after a lost reply.
-- $1 cursor, $2 offset, $3 index, $4 generation, $5 day, $6 reason, $7 sends, $8 fence, $9 whether the
-- attempt was a retry's, $10 process, $11 body bytes, $12 whether its lane stays shut.
-- One statement: done, dead letter, retry and counter change together or not at all. Only under the current fence (of
-- the retry row, or of the delivery for a first attempt, on the server it was taken from), on locked rows. The dead letter is written only when the
-- end was the first. After a failover that lost commits the event itself may be missing: then nothing is
-- written, because an end without its dead letter would be a loss; the record is read and sent again. Index: primary keys.
with durable as materialized (
    select set_config('synchronous_commit',
                      case current_setting('synchronous_commit') when 'off' then 'on'
                           else current_setting('synchronous_commit') end, true) as level
),
delivery as materialized (
    select d.cursor from oncebox.delivery as d
     where d.cursor = $1
       and ($9 or (d.epoch = $8 and d.owner = $10 and d.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)))
       for update
),
held as materialized (
    select r.cursor, r.first_attempt_at from oncebox.retry as r
     where r.cursor = $1 and r.record_offset = $2 and r.event_index = $3 and r.generation = $4
       and $9 and r.fence = $8
       for update
),
allowed as (
    select delivery.cursor from delivery cross join durable where not $9
    union all
    select held.cursor from held join delivery on true cross join durable where $9
),
-- What was to be cancelled is cancelled, whatever was answered.
withdrawn as materialized (
    select oncebox.is_withdrawn($1, $2, $3, $4) as is_so from (select count(*) from allowed) as after_locks
),
ending as materialized (
    select allowed.cursor
      from allowed
     where exists (
           select 1 from oncebox.outbox as o
            where o.cursor = $1 and o.record_offset = $2 and o.event_index = $3 and o.generation = $4 and o.day = $5)
),
ended as materialized (
    select f.cursor, withdrawn.is_so
      from ending as e
     cross join withdrawn
     cross join lateral oncebox.finish(array[e.cursor], array[$2::bigint], array[$3::integer], array[$4::integer], array[$5::date],
                                       case when withdrawn.is_so then 'cancelled' else 'discarded' end, array[$7::integer],
                                       array[null::integer]) as f
),
cleared as (
    delete from oncebox.retry as r
     using allowed
     where r.cursor = $1 and r.record_offset = $2 and r.event_index = $3 and r.generation = $4
),
written as (
    insert into oncebox.dead_letter
           (cursor, record_offset, event_index, generation, day, workflow, topic, partition, reason, key, event_type,
            content_type, traceparent, source_at, config_version, body, sends, fence, attempts, first_attempt_at,
            last_attempt_at, lane, blocks)
    select $1, $2, $3, $4, $5, c.workflow, c.topic, c.partition, $6, o.key, o.event_type, o.content_type, o.traceparent,
           o.source_at, o.config_version, o.body, $7, $8,
           coalesce((select json_agg(json_build_object(
                                'send', a.send, 'fence', a.fence, 'at', a.at, 'outcome', a.outcome,
                                'status', a.status, 'error', a.error, 'answer', encode(a.answer, 'base64'),
                                'millis', a.millis) order by a.send)
                       from oncebox.attempt as a
                      where a.cursor = $1 and a.record_offset = $2 and a.event_index = $3 and a.generation = $4
                        and a.day = $5), '[]'),
           (select min(a.at) from oncebox.attempt as a
             where a.cursor = $1 and a.record_offset = $2 and a.event_index = $3 and a.generation = $4 and a.day = $5),
           (select max(a.at) from oncebox.attempt as a
             where a.cursor = $1 and a.record_offset = $2 and a.event_index = $3 and a.generation = $4 and a.day = $5),
           o.lane, o.lane is not null and $12
      from ended
      join oncebox.cursor as c on c.id = $1
      join oncebox.outbox as o
        on o.cursor = $1 and o.record_offset = $2 and o.event_index = $3 and o.generation = $4 and o.day = $5
     where not ended.is_so
),
counted as (
    update oncebox.delivery as d
       set discarded = d.discarded + (not ended.is_so)::integer, cancelled = d.cancelled + ended.is_so::integer, settled_bytes = d.settled_bytes + $11
      from ended
     where d.cursor = ended.cursor
)
select (select count(*) from allowed) > 0 as allowed, (select count(*) from ended where not is_so) > 0 as parked;
