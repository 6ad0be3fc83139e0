-- The newest requests that did not deliver, of events of a workflow that wait, are held or are dead. Called by operate::workflows.
-- $1 workflow, $2 limit.
-- No index knows when requests were made. They are looked for at 1,000 events that are to be tried again and 200 that are being, at 250 each
-- of those whose turn is next and last, at 500 that are held in doubt and at the 100 newest dead letters: with no more than that the answer
-- is exact, and with more it is of these. Each costs one look into attempt's primary key. States are asked for as ranges and in order: no plan
-- goes through the table then, however many others there are.
-- Index: retry_state, retry_due, retry_held, dead_letter_workflow, attempt's primary key.
with tried as materialized (
    (select r.cursor, r.record_offset, r.event_index, r.generation, r.day, r.state
       from oncebox.retry as r
      where r.workflow = $1 and r.state between 'retryable' and 'retryable'
      order by r.state
      limit 1000)
     union
    (select r.cursor, r.record_offset, r.event_index, r.generation, r.day, r.state
       from oncebox.retry as r
      where r.workflow = $1 and r.state between 'active' and 'active'
      order by r.state
      limit 200)
     union
    (select r.cursor, r.record_offset, r.event_index, r.generation, r.day, r.state
       from oncebox.retry as r
      where r.workflow = $1 and r.state <> 'pending' and r.due > (select clock_timestamp())
      order by r.due
      limit 250)
     union
    (select r.cursor, r.record_offset, r.event_index, r.generation, r.day, r.state
       from oncebox.retry as r
      where r.workflow = $1 and r.state <> 'pending'
      order by r.due desc
      limit 250)
     union
    (select r.cursor, r.record_offset, r.event_index, r.generation, r.day, r.state
       from oncebox.retry as r
      where r.workflow = $1 and r.held = 'in_doubt'
      limit 500)
     union
    (select l.cursor, l.record_offset, l.event_index, l.generation, l.day, 'discarded'
       from oncebox.dead_letter as l
      where l.workflow = $1
      order by l.created_at desc
      limit 100)
)
select t.cursor, t.record_offset, t.event_index, t.generation, t.state, a.send, a.at, a.outcome, a.status, a.error, a.millis
  from tried as t
 cross join lateral (
       select b.send, b.at, b.outcome, b.status, b.error, b.millis
         from oncebox.attempt as b
        where b.cursor = t.cursor and b.record_offset = t.record_offset and b.event_index = t.event_index
          and b.generation = t.generation and b.day = t.day
        order by b.send desc
        limit $2) as a
 order by a.at desc, t.cursor, t.record_offset, t.event_index, t.generation, a.send desc
 limit $2;
