-- Where a workflow's cursors stand, for lag against Kafka, and under which epoch, so that a reader finds out that an
-- operator has moved one. Called by outbox::gauges::offsets.
-- $1 workflow, $2 cluster. Index: one_cursor_per_incarnation.
select id, topic, topic_id, partition, next_offset, owner_epoch, direct, mark_era
  from oncebox.cursor
 where workflow = $1 and cluster = $2;
