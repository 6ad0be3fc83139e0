-- Remove dead letters past their retention, a bounded number at a time. Called by outbox::partitions::maintain.
-- $1 workflow, $2 seconds they are kept, $3 limit. Index: dead_letter_workflow, primary keys.
with old as (
    select x.cursor, x.record_offset, x.event_index, x.generation
      from oncebox.dead_letter as x
     where x.workflow = $1 and x.created_at < (select clock_timestamp() - make_interval(secs => $2))
     order by x.created_at
     limit $3
       for update skip locked
),
gone as (
    delete from oncebox.dead_letter as d
     using old
     where d.cursor = old.cursor and d.record_offset = old.record_offset
       and d.event_index = old.event_index and d.generation = old.generation
 returning d.cursor, d.record_offset, d.event_index, d.generation, d.day
),
remarked as (
    update oncebox.remark as r
       set letter = 'expired'
      from gone as g
     where r.cursor = g.cursor and r.record_offset = g.record_offset and r.event_index = g.event_index
       and r.generation = g.generation and r.day = g.day
)
select gone.cursor from gone;
