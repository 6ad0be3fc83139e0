-- Store events of the direct path whose attempt failed, to be tried again. Called by outbox::spill::spill, in batches,
-- possibly again after a lost reply.
-- $1 process, $2 cursors once each
-- events: $3 owner epochs that they were sent under, $4 cursors, $5 offsets, $6 indexes, $7 generations, $8 keys, $9 types, $10 content types, $11 traceparents,
--         $12 source times, $13 config versions, $14 bodies, $15 workflows
-- what is next: $16 counted attempts, $17 seconds until due, $18 in doubt, $19 seconds since the attempt, $20 why it is
--         held, $22 requests made, $21 seconds for which it is leased to this process, which is about to end it; null: it waits
--
-- The rows hang on `spilled`, and that on the cursor, which this process must own: a stale process stores nothing, and
-- its events are missing from the answer. A place that is there already is durable already. Index: primary keys.
with durable as materialized (
    select set_config('synchronous_commit',
                      case current_setting('synchronous_commit') when 'off' then 'on'
                           else current_setting('synchronous_commit') end, true) as level,
           oncebox.today() as day
),
locked as materialized (
    select id, owner, owner_epoch, direct from oncebox.cursor where id = any($2) order by id for update
),
events as materialized (
    select e.*
      from unnest($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
                  $22)
           as e (epoch, cursor, record_offset, event_index, generation, key, event_type, content_type, traceparent, source_at,
                 config_version, body, workflow, counted, delay, in_doubt, ago, held, lease,
                 sends)
      join locked on locked.id = e.cursor and locked.owner_epoch = e.epoch
     where locked.direct and locked.owner = $1
),
fresh as (
    insert into oncebox.spilled (cursor, record_offset, event_index, generation, day)
    select e.cursor, e.record_offset, e.event_index, e.generation, durable.day
      from events as e
     cross join durable
     order by e.cursor, e.record_offset, e.event_index
        on conflict do nothing
 returning cursor, record_offset, event_index, generation, day
),
stored as (
    insert into oncebox.outbox
           (cursor, record_offset, event_index, generation, day, key, event_type, content_type, traceparent,
            source_at, created_at, config_version, body)
    select e.cursor, e.record_offset, e.event_index, e.generation, f.day, e.key, e.event_type, e.content_type,
           e.traceparent, e.source_at, clock_timestamp() - make_interval(secs => e.ago), e.config_version, e.body
      from events as e
      join fresh as f on f.cursor = e.cursor and f.record_offset = e.record_offset and f.event_index = e.event_index
),
waiting as (
    insert into oncebox.retry
           (cursor, record_offset, event_index, generation, day, workflow, state, sends, counted, fence, due, leased_by,
            lease_until, in_doubt, held, first_attempt_at, stopped, event_at)
    select e.cursor, e.record_offset, e.event_index, e.generation, f.day, e.workflow,
           case when e.held is not null then 'pending' when e.lease is not null then 'active' else 'retryable' end,
           e.sends, e.counted, e.epoch, clock_timestamp() + make_interval(secs => coalesce(e.lease, e.delay)),
           case when e.lease is not null then $1 end,
           case when e.lease is not null then clock_timestamp() + make_interval(secs => e.lease) end,
           e.in_doubt, e.held, clock_timestamp() - make_interval(secs => e.ago),
           (select w.stopped from oncebox.workflow as w where w.id = e.workflow),
           coalesce(to_timestamp(e.source_at / 1000.0), clock_timestamp() - make_interval(secs => e.ago))
      from events as e
      join fresh as f on f.cursor = e.cursor and f.record_offset = e.record_offset and f.event_index = e.event_index
),
counted as (
    update oncebox.cursor as c
       set appended = c.appended + sums.events, appended_bytes = c.appended_bytes + sums.bytes
      from (select e.cursor, count(*) as events, sum(octet_length(e.body))::bigint as bytes
              from events as e
              join fresh as f
                on f.cursor = e.cursor and f.record_offset = e.record_offset and f.event_index = e.event_index
             group by e.cursor) as sums
     where c.id = sums.cursor
)
select e.cursor, e.record_offset, e.event_index, e.generation, coalesce(f.day, s.day) as day,
       f.day is not null as fresh
  from events as e
  left join fresh as f on f.cursor = e.cursor and f.record_offset = e.record_offset and f.event_index = e.event_index
  left join oncebox.spilled as s on s.cursor = e.cursor and s.record_offset = e.record_offset
                                and s.event_index = e.event_index and s.generation = e.generation;
