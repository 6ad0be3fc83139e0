-- Decide what becomes of events that have a uniqueness key. Called by outbox::unique::take, before they are stored and in the same transaction.
--
-- $1 process, or null for events over HTTP; $2 cursors, $3 owner epochs, $4 expected offsets: the events of a cursor that is not where the
-- caller believes have no fate, and are not stored
-- events: $5 workflows, $6 fingerprints, $7 cursors, $8 offsets, $9 indexes; their policies: $10 states, by commas,
--         $11 periods (null: no end), $12 what to do on a conflict, $13 seconds for which the key is remembered at least,
--         $14 when each is due by itself, in seconds since 1970 (null: now), $15 whether it keeps order
--
-- fate: stored; waits (as pending, until the one that is being sent is settled); suppressed or duplicate (not stored); cancelled (stored,
-- and replaced by a later one of the same batch). other_*: the event it meets. due: of the one it replaces, in seconds since 1970.
-- Keys are locked in order, then deliveries in order; nobody who holds a delivery asks for a key. The statement itself is the function of
-- this name, in migrations/0012_append.sql. Index: primary keys.
select ordinal, fate, other_cursor, other_offset, other_index, other_generation, other_state, due
  from oncebox.take_unique($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);
