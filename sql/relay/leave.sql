-- Say that a process is no more, so that the others take its share at once. Called by outbox::fleet::leave.
-- $1 process. Index: primary key.
delete from oncebox.process where id = $1;
