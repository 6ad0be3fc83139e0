-- Forget events of the direct path that nothing will read again, a bounded number at a time. Called by
-- outbox::direct::prune. $1 limit. Index: spilled_at.
-- Below the copy of the marked offset, and old enough that no process can be about to read from before it.
delete from oncebox.spilled as s
 using (select x.cursor, x.record_offset, x.event_index, x.generation
          from oncebox.spilled as x
          join oncebox.cursor as c on c.id = x.cursor
         where x.at < (select clock_timestamp() - interval '1 hour')
           and (x.record_offset < c.next_offset or x.generation <> c.generation)
         order by x.at
         limit $1
           for update of x skip locked) as old
 where s.cursor = old.cursor and s.record_offset = old.record_offset and s.event_index = old.event_index
   and s.generation = old.generation
returning 1 as forgotten;
