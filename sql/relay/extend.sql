-- Keep the deliveries that this process holds, and note how far they are settled. Called by outbox::delivery::extend.
-- $1 cursors, $2 epochs, $3 settled_to, $4 process, $5 lease seconds. Index: primary key.
-- Missing from the answer: lost. wanted: another process has taken the ingest and waits for the delivery.
with locked as materialized (
    select d.cursor from oncebox.delivery as d where d.cursor = any($1) order by d.cursor for update
)
update oncebox.delivery as d
   set lease_until = clock_timestamp() + make_interval(secs => $5),
       settled_to = greatest(d.settled_to, mine.settled_to)
  from locked
  join unnest($1, $2, $3) as mine (cursor, epoch, settled_to) on mine.cursor = locked.cursor
 where d.cursor = locked.cursor and d.owner = $4 and d.epoch = mine.epoch
returning d.cursor,
          (select c.owner is not null and c.owner <> $4 from oncebox.cursor as c where c.id = d.cursor) as wanted;
