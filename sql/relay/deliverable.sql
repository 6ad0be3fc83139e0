-- Cursors of a workflow whose delivery is free to be taken. Called by outbox::delivery::free.
-- $1 workflow, $2 process. Index: delivery_workflow.
-- The ingest owner takes at once; anybody else only what has work and was left alone for one more lease, because then
-- its ingest owner is gone or never comes (a topic that was deleted, a workflow without consumers).
select d.cursor
  from oncebox.delivery as d
  join oncebox.cursor as c on c.id = d.cursor
 where d.workflow = $1
   and (d.owner is null or d.lease_until < clock_timestamp())
   and (c.owner = $2
        or ((d.settled_to < c.next_offset or d.owner is not null)
            and coalesce(d.lease_until, '-infinity') < clock_timestamp() - make_interval(secs => $3)
            and not exists (
                select 1 from oncebox.delivery as other
                 where other.workflow = d.workflow and other.owner = c.owner
                   and other.lease_until > clock_timestamp())));
