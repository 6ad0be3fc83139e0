-- Let go of a delivery once all that was sent is settled. Called by outbox::delivery::release.
-- $1 cursor, $2 process, $3 epoch, $4 settled_to. Index: primary key.
update oncebox.delivery
   set owner = null, lease_until = null, settled_to = greatest(settled_to, $4)
 where cursor = $1 and owner = $2 and epoch = $3
returning cursor;
