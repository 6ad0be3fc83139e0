-- Cursors with events that are neither done nor in retry. Called by outbox::left::cursors. $1 workflow.
-- Index: delivery_workflow.
select d.cursor
  from oncebox.delivery as d
  join oncebox.cursor as c on c.id = d.cursor
 where d.workflow = $1 and not c.direct and d.settled_to < c.next_offset
 order by d.cursor;
