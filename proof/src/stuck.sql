-- Events of one workflow that are stored, failed once, and are due: more than its endpoint takes in any time that matters.
-- $1 workflow, $2 how many. Their offsets are below all that the topic has, so that nothing else is in their place.
with cursor as (
    select c.id, w.version from oncebox.cursor as c join oncebox.workflow as w on w.id = c.workflow
     where c.workflow = $1 order by c.partition limit 1
),
stored as (
    insert into oncebox.outbox
           (cursor, record_offset, event_index, generation, day, key, event_type, content_type, source_at, created_at,
            config_version, body)
    select cursor.id, -n, 0, 0, oncebox.today(), 'stuck-' || n, 'Changed', 'application/json', 0, clock_timestamp(),
           coalesce(cursor.version, 0), convert_to('{"data":[0,0,"0"]}', 'UTF8')
      from cursor cross join generate_series(1, $2::bigint) as n
 returning cursor, record_offset, day
),
counted as (
    update oncebox.cursor as c set appended = c.appended + $2 from cursor where c.id = cursor.id
)
insert into oncebox.retry
       (cursor, record_offset, event_index, generation, day, workflow, state, sends, counted, fence, due, in_doubt,
        first_attempt_at, event_at)
select s.cursor, s.record_offset, 0, 0, s.day, $1, 'retryable', 1, 1, 1, clock_timestamp(), false, clock_timestamp(),
       clock_timestamp()
  from stored as s;
