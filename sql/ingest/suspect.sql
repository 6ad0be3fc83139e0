-- Note the record that is about to be read alone. Called by outbox::cursor::suspect.
-- $1 cursor, $2 process, $3 epoch, $4 offset. Index: primary key. Fenced like every write of an ingest owner.
-- Counted: a process may die of something else while a record is under suspicion.
update oncebox.cursor
   set suspect_offset = $4, suspect_times = case when suspect_offset = $4 then suspect_times + 1 else 1 end
 where id = $1 and owner = $2 and owner_epoch = $3;
