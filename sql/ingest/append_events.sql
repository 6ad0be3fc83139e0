-- Store what was read from several partitions, each all or nothing: the common case of append.sql, without records that make no
-- event, without uniqueness keys and without a delay. Called by outbox::append.
--
-- $1 process
-- $2 cursors, $3 owner epochs, $4 expected offsets, $5 new offsets, $6 delivery epochs (-1: do not claim),
-- $7 event counts, $8 event bytes, $9 filtered ranges, $10 tombstone ranges
-- events: $11 cursors, $12 offsets, $13 indexes, $14 keys, $15 types, $16 content types, $17 traceparents,
--         $18 source times, $19 config versions, $20 bodies, $21 lanes, $25 fingerprints (null: repeats are not suppressed),
--         $26 seconds for which a fingerprint is remembered
-- A list may be empty: indexes are 0 then, types $22, content types $23, config versions $24, and the others null.
--
-- The statement itself is the function of this name, in migrations/0012_append.sql: planned once per connection.
-- The rows hang on the cursor, never the other way round: see append.sql, whose fences these are, and whose way with repeats. Each body is
-- copied once on its way from the parameters to its page; the general statement copies it three times. Index: primary keys.
select id, claimed, generation, day, left_offset, left_index, left_offset is not null as suppressed
  from oncebox.append_events($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,
                             $24, $25, $26);
