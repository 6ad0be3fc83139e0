-- Make a dead letter into events again. Called by dead_letter::replay.
-- $1 cursor, $2 offset, $3 index, $4 generation, $5 config version, $6 who
-- events: $7 indexes, $8 keys, $9 types, $10 content types, $11 traceparents, $12 source times, $13 bodies, $14 lanes
-- $15 the replay that it is part of, or null
-- $16 uniqueness keys of the events (null: none, or the one that they have already), $17 seconds for which these are remembered at least,
-- $18 the policy's period (null: none), $19 workflow
-- $20 what tells the changes apart of a record that could not be read when it came (null: repeats are not suppressed), $21 seconds for which
-- that is remembered: whoever replays asks for a request, and repeats that come later are suppressed
-- One statement: the dead letter goes and its events come, or neither, and the replay counts it in the same. The delete is what
-- makes it happen once, however often it is asked for. Not while another event of the same place, and so with the same key, is
-- under way: an operator may have had the record read again. Where order is kept it waits at its old place in its lane for its turn. The fence goes on
-- from where it was, so that it never falls for a key. Index: primary keys.
with active as materialized (
    select o.generation
      from oncebox.outbox as o
     where o.cursor = $1 and o.record_offset = $2 and o.event_index = any($7) and o.generation <> $4
       and not exists (
           select 1 from oncebox.ended as e
            where e.cursor = o.cursor and e.block = o.record_offset >> 6 and e.event_index = o.event_index
              and e.generation = o.generation and e.day = o.day and oncebox.has(e.bits, o.record_offset))
     limit 1
),
-- Nor while another event has its uniqueness key.
rival as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation from oncebox.rival_of($1, $2, $3, $4) as r
     union all
    select r.cursor, r.record_offset, r.event_index, r.generation
      from oncebox.rival_of_new($1, $19, array_remove($16, null)) as r
     where not exists (select 1 from active)
       and exists (select 1 from oncebox.dead_letter as d
                    where d.cursor = $1 and d.record_offset = $2 and d.event_index = $3 and d.generation = $4)
     limit 1
),
taken as (
    delete from oncebox.dead_letter as d
     where d.cursor = $1 and d.record_offset = $2 and d.event_index = $3 and d.generation = $4
       and not exists (select 1 from active)
       and not exists (select 1 from rival)
 returning d.cursor, d.record_offset, d.event_index, d.generation as old_generation, d.day as old_day,
           d.generation + 1 as generation, d.workflow, d.fence, d.lane, oncebox.today() as day
),
remarked as (
    update oncebox.remark as r
       set letter = 'replayed'
      from taken as t
     where r.cursor = t.cursor and r.record_offset = t.record_offset and r.event_index = t.event_index
       and r.generation = t.old_generation and r.day = t.old_day
),
made as (
    insert into oncebox.outbox
           (cursor, record_offset, event_index, generation, day, key, event_type, content_type, traceparent,
            source_at, created_at, config_version, lane, body)
    select taken.cursor, taken.record_offset, e.event_index, taken.generation, taken.day, e.key, e.event_type,
           e.content_type, e.traceparent, e.source_at, clock_timestamp(), $5, coalesce(taken.lane, e.lane), e.body
      from taken
     cross join unnest($7, $8, $9, $10, $11, $12, $13, $14)
           as e (event_index, key, event_type, content_type, traceparent, source_at, body, lane)
 returning cursor, record_offset, event_index, generation, day, source_at, created_at, lane, length(body) as bytes
),
queued as (
    insert into oncebox.retry
           (cursor, record_offset, event_index, generation, day, workflow, state, sends, counted, fence, due, in_doubt,
            stopped, event_at, lane, held)
    select made.cursor, made.record_offset, made.event_index, made.generation, made.day, taken.workflow,
           case when made.lane is not null and d.ordered then 'pending' else 'available' end,
           0, 0, taken.fence, clock_timestamp(), false,
           (select w.stopped from oncebox.workflow as w where w.id = taken.workflow),
           coalesce(to_timestamp(made.source_at / 1000.0), made.created_at), made.lane,
           case when made.lane is not null and d.ordered then 'order' end
      from made
     cross join taken
      join oncebox.delivery as d on d.cursor = taken.cursor
),
keyed as (
    insert into oncebox.unique_event
           (workflow, fingerprint, cursor, record_offset, event_index, generation, created_at, expires_at)
    select u.workflow, u.fingerprint, made.cursor, made.record_offset, made.event_index, made.generation, clock_timestamp(),
           u.expires_at + (clock_timestamp() - u.created_at)
      from made
      join taken on taken.cursor = made.cursor
      join oncebox.unique_event as u
        on u.cursor = taken.cursor and u.record_offset = taken.record_offset and u.event_index = taken.event_index
       and u.generation = taken.old_generation
     union all
    select $19, e.fingerprint, made.cursor, made.record_offset, made.event_index, made.generation, clock_timestamp(),
           greatest(clock_timestamp() + make_interval(secs => $17),
                    timezone('utc', timezone('utc', clock_timestamp()) + coalesce($18, 'PT0S')::interval))
      from made
      join unnest($7, $16) as e (event_index, fingerprint) on e.event_index = made.event_index and e.fingerprint is not null
),
remembered as (
    insert into oncebox.seen as s (workflow, fingerprint, cursor, record_offset, event_index, expires_at)
    select distinct on (e.fingerprint)
           $19, e.fingerprint, made.cursor, made.record_offset, made.event_index, clock_timestamp() + make_interval(secs => $21)
      from made
      join unnest($7, $20) as e (event_index, fingerprint) on e.event_index = made.event_index and e.fingerprint is not null
     order by e.fingerprint, made.event_index
        on conflict (workflow, fingerprint) do update
       set cursor = excluded.cursor, record_offset = excluded.record_offset, event_index = excluded.event_index,
           expires_at = excluded.expires_at
     where s.expires_at <= clock_timestamp()
),
counted as (
    update oncebox.cursor as c
       set appended = c.appended + sums.events, appended_bytes = c.appended_bytes + sums.bytes
      from (select count(*) as events, coalesce(sum(bytes), 0) as bytes from made) as sums
     where c.id = $1 and sums.events > 0
),
progress as (
    update oncebox.replay as j
       set replayed = j.replayed + 1
      from taken
     where j.id = $15
),
audited as (
    insert into oncebox.audit (who, action, workflow, detail)
    select $6, 'dead letter replayed', taken.workflow, oncebox.event_id($1, $2, $3, $4)
      from taken
)
select (select count(*) from taken) as taken, (select count(*) from made) as made,
       coalesce((select rival.cursor from rival), case when exists (select 1 from active) then $1 end) as active_cursor,
       coalesce((select rival.record_offset from rival), $2) as active_offset,
       coalesce((select rival.event_index from rival), $3) as active_index,
       coalesce((select rival.generation from rival), (select active.generation from active)) as active_generation,
       exists (select 1 from oncebox.dead_letter as d
                where d.cursor = $1 and d.record_offset = $2 and d.event_index = $3 and d.generation = $4) as is_there;
