-- Lock cursors, in id order, as every writer of several does. Called by outbox::direct::leave, first statement. $1 cursors.
-- Index: primary key.
select id from oncebox.cursor where id = any($1) order by id for update;
