-- Store what was read from several partitions, each all or nothing, where every event is the only one of its record and they have all
-- else in common: what append_events.sql does, for most batches. Called by outbox::append.
--
-- $1 process
-- $2 cursors, $3 owner epochs, $4 expected offsets, $5 new offsets, $6 delivery epochs (-1: do not claim),
-- $7 event counts, $8 event bytes, $9 filtered ranges, $10 tombstone ranges
-- events: $11 cursors, $12 offsets, $13 keys, $14 source times (empty: none has one), $15 all bodies as one, of which each event has
--         those from byte $16 on (the first is 1), $17 many; of all of them: $18 type, $19 content type, $20 config version
--
-- The statement itself is the function of this name, in migrations/0014_alike.sql: planned once per connection.
-- The rows hang on the cursor, never the other way round: see append.sql, whose fences these are. Index: primary keys.
select id, claimed, generation, day, null::bigint as left_offset, null::integer as left_index, false as suppressed
  from oncebox.append_alike($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20);
