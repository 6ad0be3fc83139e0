-- The event that a caller over HTTP gave under a key. Called by outbox::seen::given. $1 workflow, $2 what stands for the key.
-- is_remembered: given again now, it makes no second event. Index: primary key.
select s.cursor, s.record_offset, s.event_index, s.generation, s.expires_at > clock_timestamp() as is_remembered
  from oncebox.seen as s
 where s.workflow = $1 and s.fingerprint = $2;
