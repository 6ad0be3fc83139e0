-- Hold a cursor, so that what is decided about it is decided by one. Called by outbox::gap::record, first statement.
-- $1 cursor. Index: primary key.
select id from oncebox.cursor where id = $1 for update;
