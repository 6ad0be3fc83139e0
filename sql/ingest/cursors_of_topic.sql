-- Every cursor that a workflow has on a topic name, of all its incarnations. Called by outbox::cursor::of_topic.
-- $1 workflow, $2 cluster, $3 topic. Index: cursor_topic. failed_over: commits may be missing since the copy was written.
select id, topic_id, partition, next_offset, direct, mark_era,
       direct and timeline is distinct from left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) as failed_over
  from oncebox.cursor
 where workflow = $1 and cluster = $2 and topic = $3;
