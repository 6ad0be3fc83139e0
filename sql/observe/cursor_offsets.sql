-- Where a workflow's cursors stand, for lag against Kafka. Called by outbox::gauges::offsets.
-- $1 workflow, $2 cluster. Index: one_cursor_per_incarnation.
select topic, topic_id, partition, next_offset from oncebox.cursor where workflow = $1 and cluster = $2;
