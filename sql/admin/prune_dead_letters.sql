-- Remove dead letters past their retention, a bounded number at a time. Called by outbox::partitions::maintain.
-- $1 workflow, $2 seconds they are kept, $3 limit. Index: dead_letter_workflow.
delete from oncebox.dead_letter as d
 using (select x.cursor, x.record_offset, x.event_index, x.generation
          from oncebox.dead_letter as x
         where x.workflow = $1 and x.created_at < (select clock_timestamp() - make_interval(secs => $2))
         order by x.created_at
         limit $3
           for update skip locked) as old
 where d.cursor = old.cursor and d.record_offset = old.record_offset
   and d.event_index = old.event_index and d.generation = old.generation
returning d.cursor;
