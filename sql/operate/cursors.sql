-- The cursors of a workflow, and how far each is settled. Called by operate::listing. $1 workflow. Index: delivery_workflow.
select d.cursor, d.settled_to
  from oncebox.delivery as d
 where d.workflow = $1
 order by d.cursor;
