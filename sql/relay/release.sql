-- Let go of a delivery once all that was sent is settled. Called by outbox::delivery::release.
-- $1 cursor, $2 process, $3 epoch, $4 settled_to, $5 timeline. Index: primary key.
-- What was settled on another timeline may be lost here: then settled_to stays, and the next owner looks again.
update oncebox.delivery
   set owner = null, lease_until = null,
       settled_to = case when $5 = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
                         then greatest(settled_to, $4) else settled_to end
 where cursor = $1 and owner = $2 and epoch = $3
returning cursor;
