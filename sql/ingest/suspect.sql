-- Note the record that is about to be read alone. Called by outbox::cursor::suspect.
-- $1 cursor, $2 process, $3 epoch, $4 offset. Index: primary key. Fenced like every write of an ingest owner.
update oncebox.cursor
   set suspect_offset = $4
 where id = $1 and owner = $2 and owner_epoch = $3;
