-- Where cursors stand: what resolves a COMMIT whose reply was lost. Called by outbox::append::resolve.
-- $1 cursor ids. Index: primary key.
select id, owner, owner_epoch, next_offset, claimed_to
  from oncebox.cursor
 where id = any($1);
