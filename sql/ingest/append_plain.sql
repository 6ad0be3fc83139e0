-- Store what was read from several partitions, each all or nothing: the common case of append.sql, without records that make no
-- event, without suppressed repeats and without a delay. Called by outbox::append.
--
-- $1 process
-- $2 cursors, $3 owner epochs, $4 expected offsets, $5 new offsets, $6 delivery epochs (-1: do not claim),
-- $7 event counts, $8 event bytes, $9 filtered ranges, $10 tombstone ranges
-- events: $11 cursors, $12 offsets, $13 indexes, $14 keys, $15 types, $16 content types, $17 traceparents,
--         $18 source times, $19 config versions, $20 bodies, $21 lanes
--
-- The statement itself is the function of this name, in migrations/0006_today.sql: planned once per connection.
-- The rows hang on the cursor, never the other way round: see append.sql, whose fences these are. Each body is copied once on its
-- way from the parameters to its page; the general statement copies it three times. Index: primary key.
select id, claimed, generation, day, null::bigint as left_offset, null::integer as left_index, null::boolean as suppressed
  from oncebox.append_plain($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21);
