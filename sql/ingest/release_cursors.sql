-- Give up the ingest ownership cleanly. Called by outbox::cursor::release on revocation and shutdown.
-- $1 cursor ids, $2 epochs, $3 process. Index: primary key. A newer owner is left alone.
with locked as materialized (
    select id from oncebox.cursor where id = any($1) order by id for update
)
update oncebox.cursor as c
   set owner = null, taken_offset = null, taken_times = 0, suspect_offset = null, suspect_times = 0
  from locked
  join unnest($1, $2) as mine (id, epoch) on mine.id = locked.id
 where c.id = locked.id and c.owner = $3 and c.owner_epoch = mine.epoch;
