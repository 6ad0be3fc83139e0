-- Store records of the direct path that could not be made into events, as dead letters. Called by outbox::spill::bury,
-- possibly again after a lost reply.
-- $1 process, $2 cursors once each
-- records: $3 owner epochs that they were read under, $4 cursors, $5 offsets, $6 generations, $7 reasons, $8 details, $9 config versions, $10 values,
--          $11 record keys, $12 record headers, $13 source times
-- Fenced as sql/direct/spill.sql is. Index: primary keys. Cursor before delivery, as everywhere.
with durable as materialized (
    select set_config('synchronous_commit',
                      case current_setting('synchronous_commit') when 'off' then 'on'
                           else current_setting('synchronous_commit') end, true) as level,
           oncebox.today() as day
),
locked as materialized (
    select id, owner, owner_epoch, direct, workflow, topic, partition
      from oncebox.cursor where id = any($2) order by id for update
),
records as materialized (
    select r.*, locked.workflow, locked.topic, locked.partition
      from unnest($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
           as r (epoch, cursor, record_offset, generation, reason, detail, config_version, value, record_key, record_headers,
                 source_at)
      join locked on locked.id = r.cursor and locked.owner_epoch = r.epoch
     where locked.direct and locked.owner = $1
),
fresh as (
    insert into oncebox.spilled (cursor, record_offset, event_index, generation, day)
    select r.cursor, r.record_offset, 0, r.generation, durable.day
      from records as r
     cross join durable
     order by r.cursor, r.record_offset
        on conflict do nothing
 returning cursor, record_offset, generation, day
),
parked as (
    insert into oncebox.dead_letter
           (cursor, record_offset, event_index, generation, day, workflow, topic, partition, reason, detail,
            source_at, config_version, body, record_key, record_headers, sends, fence, attempts)
    select r.cursor, r.record_offset, 0, r.generation, f.day, r.workflow, r.topic, r.partition, r.reason, r.detail,
           r.source_at, r.config_version, r.value, r.record_key, r.record_headers::json, 0, 0, '[]'
      from records as r
      join fresh as f on f.cursor = r.cursor and f.record_offset = r.record_offset
),
counted as (
    update oncebox.cursor as c
       set appended = c.appended + sums.records
      from (select f.cursor, count(*) as records from fresh as f group by f.cursor) as sums
     where c.id = sums.cursor
),
sums as materialized (
    select d.cursor, (select count(*) from fresh as f where f.cursor = d.cursor) as records
      from oncebox.delivery as d
     where d.cursor in (select f.cursor from fresh as f)
     order by d.cursor
       for update of d
),
ended as materialized (
    select count(*)
      from (select count(*) from sums) as after_deliveries
     cross join lateral oncebox.finish(
               array(select f.cursor from fresh as f), array(select f.record_offset from fresh as f),
               array(select 0 from fresh as f), array(select f.generation from fresh as f),
               array(select f.day from fresh as f), 'discarded', array(select 0 from fresh as f),
               array(select null::integer from fresh as f)) as f
),
discarded as (
    update oncebox.delivery as d set discarded = d.discarded + sums.records from sums where d.cursor = sums.cursor
)
select r.cursor, r.record_offset, f.day is not null as fresh
  from records as r
 cross join ended
  left join fresh as f on f.cursor = r.cursor and f.record_offset = r.record_offset;
