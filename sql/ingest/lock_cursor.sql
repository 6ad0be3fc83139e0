-- Hold a cursor, so that what is decided about it is decided by one. Called by outbox::gap::record and by outbox::moves, first statement.
-- $1 cursor. Index: primary key.
select id from oncebox.cursor where id = $1 for update;
