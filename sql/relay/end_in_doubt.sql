-- Events of an at-most-once workflow whose only attempt is in doubt become dead letters: they are never sent again. Called
-- by outbox::claim::retries before it claims. $1 workflow, $2 limit, $3 whether lanes stay shut. Index: retry_in_doubt, primary keys.
-- These are events of a lost owner, and retries whose lease ran out; an attempt that ended in doubt is parked as it is
-- settled. One statement: done, dead letter, retry and counters change together or not at all. Deliveries are locked in
-- cursor order before retries, like everywhere. An event that is done already (a late answer) only loses its row here.
with durable as materialized (
    select set_config('synchronous_commit',
                      case current_setting('synchronous_commit') when 'off' then 'on'
                           else current_setting('synchronous_commit') end, true) as level
),
candidates as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation
      from oncebox.retry as r
     where r.workflow = $1 and r.state <> 'pending' and r.due <= (select clock_timestamp())
       and (r.in_doubt or r.state = 'active')
     order by r.due
     limit $2
),
locked as materialized (
    select d.cursor from oncebox.delivery as d
     where d.cursor in (select cursor from candidates)
     order by d.cursor
       for update
),
due as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation, r.day, r.sends, r.fence, r.lease_until,
           r.state = 'active' as expired
      from locked
      join candidates as c on c.cursor = locked.cursor
      join oncebox.retry as r
        on r.cursor = c.cursor and r.record_offset = c.record_offset
       and r.event_index = c.event_index and r.generation = c.generation
     cross join durable
     where r.state <> 'pending' and r.due <= (select clock_timestamp()) and (r.in_doubt or r.state = 'active')
       for update of r skip locked
),
cleared as (
    delete from oncebox.retry as r
     using due
     where r.cursor = due.cursor and r.record_offset = due.record_offset
       and r.event_index = due.event_index and r.generation = due.generation
),
ended as (
    insert into oncebox.done (cursor, record_offset, event_index, generation, day, state, sends, body_bytes, at)
    select due.cursor, due.record_offset, due.event_index, due.generation, due.day, 'discarded', due.sends,
           octet_length(o.body), clock_timestamp()
      from due
      join oncebox.outbox as o
        on o.cursor = due.cursor and o.record_offset = due.record_offset and o.event_index = due.event_index
       and o.generation = due.generation and o.day = due.day
        on conflict do nothing
 returning cursor, record_offset, event_index, generation, day, body_bytes
),
written as (
    insert into oncebox.dead_letter
           (cursor, record_offset, event_index, generation, day, workflow, topic, partition, reason, key, event_type,
            content_type, traceparent, source_at, config_version, body, sends, fence, attempts, first_attempt_at,
            last_attempt_at, lane, blocks)
    select due.cursor, due.record_offset, due.event_index, due.generation, due.day, $1, c.topic, c.partition, 'in_doubt',
           o.key, o.event_type, o.content_type, o.traceparent, o.source_at, o.config_version, o.body, due.sends,
           due.fence, coalesce(tried.attempts, '[]'), tried.first_at, tried.last_at, o.lane,
           o.lane is not null and $3
      from ended
      join due on due.cursor = ended.cursor and due.record_offset = ended.record_offset
              and due.event_index = ended.event_index and due.generation = ended.generation
      join oncebox.cursor as c on c.id = due.cursor
      join oncebox.outbox as o
        on o.cursor = due.cursor and o.record_offset = due.record_offset and o.event_index = due.event_index
       and o.generation = due.generation and o.day = due.day
     cross join lateral (
           select json_agg(json_build_object(
                      'send', t.send, 'fence', t.fence, 'at', t.at, 'outcome', t.outcome, 'status', t.status,
                      'error', t.error, 'answer', encode(t.answer, 'base64'), 'millis', t.millis) order by t.send)
                      as attempts,
                  min(t.at) as first_at, max(t.at) as last_at
             from (select a.send, a.fence, a.at, a.outcome, a.status, a.error, a.answer, a.millis
                     from oncebox.attempt as a
                    where a.cursor = due.cursor and a.record_offset = due.record_offset
                      and a.event_index = due.event_index and a.generation = due.generation and a.day = due.day
                    union all
                   select due.sends, due.fence, due.lease_until, 'in_doubt', null, 'the relay that held the event '
                          || 'stopped before it settled it', null, 0
                    where due.expired) as t) as tried
),
counted as (
    update oncebox.delivery as d
       set discarded = d.discarded + sums.events, settled_bytes = d.settled_bytes + sums.bytes
      from (select cursor, count(*) as events, sum(body_bytes)::bigint as bytes from ended group by cursor) as sums
     where d.cursor = sums.cursor
)
select (select count(*) from ended) as ended, (select count(*) from due where expired) as expired;
