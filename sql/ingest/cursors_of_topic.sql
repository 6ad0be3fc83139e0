-- Every cursor that a workflow has on a topic name, of all its incarnations. Called by outbox::cursor::of_topic.
-- $1 workflow, $2 cluster, $3 topic. Index: cursor_topic.
select id, topic_id, partition, next_offset
  from oncebox.cursor
 where workflow = $1 and cluster = $2 and topic = $3;
