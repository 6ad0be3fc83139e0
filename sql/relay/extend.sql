-- Keep the deliveries that this process holds, and note how far they are settled. Called by outbox::delivery::extend.
-- $1 cursors, $2 epochs, $3 settled_to, $4 process, $5 lease seconds, $6 timelines. Index: primary key.
-- Missing from the answer: lost. wanted: another process has taken the ingest and waits for the delivery.
-- After a failover the database may have lost what this process knows to be settled; the server's timeline tells. What
-- is known of another timeline is not written: the delivery is taken anew, from what this database holds.
with locked as materialized (
    select d.cursor from oncebox.delivery as d where d.cursor = any($1) order by d.cursor for update
)
update oncebox.delivery as d
   set lease_until = clock_timestamp() + make_interval(secs => $5),
       settled_to = greatest(d.settled_to, mine.settled_to)
  from locked
  join unnest($1, $2, $3, $6) as mine (cursor, epoch, settled_to, timeline) on mine.cursor = locked.cursor
 where d.cursor = locked.cursor and d.owner = $4 and d.epoch = mine.epoch
   and mine.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
returning d.cursor,
          (select c.owner is not null and c.owner <> $4 from oncebox.cursor as c where c.id = d.cursor) as wanted;
