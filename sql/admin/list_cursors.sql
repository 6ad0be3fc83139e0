-- The cursors of a workflow with their deliveries. Called by outbox::cursor::list. $1 workflow. Index: cursor_topic.
select c.id, c.cluster, c.topic, c.topic_id, c.partition, c.start_offset, c.next_offset, c.claimed_to, d.settled_to,
       c.generation, c.appended, d.completed, d.cancelled, d.discarded, d.suppressed
  from oncebox.cursor as c
  join oncebox.delivery as d on d.cursor = c.id
 where c.workflow = $1
 order by c.topic, c.topic_id, c.partition;
