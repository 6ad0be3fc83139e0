-- An operator says that a held event was not processed: it is sent again. Called by outbox::resolve::send_again.
-- $1 cursor, $2 offset, $3 index, $4 generation, $5 fence. Index: primary key.
-- The fence rises, so that nothing that was under way before can write the row any more.
update oncebox.retry
   set state = 'retryable', held = null, in_doubt = false, due = clock_timestamp(),
       fence = greatest(fence + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)
 where cursor = $1 and record_offset = $2 and event_index = $3 and generation = $4 and fence = $5
   and state = 'pending' and held = 'in_doubt'
returning cursor;
