-- A record that was read alone was made into events: whatever ends the process now, it was not this record. Called by
-- outbox::cursor::clear. $1 cursor, $2 process, $3 epoch. Index: primary key. Fenced like every write of an ingest owner.
update oncebox.cursor
   set suspect_offset = null, suspect_times = 0
 where id = $1 and owner = $2 and owner_epoch = $3;
