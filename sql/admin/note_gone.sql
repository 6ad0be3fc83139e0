-- Note what is about to go with a day that is past its retention: verify is not to miss it. Called by outbox::partitions, before anything
-- is dropped of what says what became of that day's records and events; again is harmless. $1 day. All of its events have ended, so that
-- nothing comes to it any more. The statement itself is the function of this name, in migrations/0015_verify.sql.
select oncebox.note_gone($1) as noted;
