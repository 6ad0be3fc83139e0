-- Keep the deliveries that this process holds, and note how far they are settled. Called by outbox::delivery::extend.
-- $1 cursors, $2 epochs, $3 settled_to, $4 process, $5 lease seconds, $6 timelines, $7 workflow, $8 seconds after which a silent process
-- counts as gone. Index: primary key; a row per process.
-- Missing from the answer: lost. wanted: another process waits for the delivery, because it reads the cursor now and sends too, or, where
-- reading and sending are apart, because it is its turn (deliverable.sql). Whoever looks gone itself, after an outage, does not know who is
-- there.
-- After a failover the database may have lost what this process knows to be settled; the server's timeline tells. What
-- is known of another timeline is not written: the delivery is taken anew, from what this database holds.
with senders as materialized (
    select s.id, s.turn, s.many from oncebox.senders($7, $8) as s where s.apart
),
known as materialized (
    select p.id from oncebox.process as p
     where p.id = $4 and p.seen_at > clock_timestamp() - make_interval(secs => $8)
),
locked as materialized (
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
          exists (select 1 from known)
          and (select coalesce(coalesce(next.id, reader.id) <> $4, false)
                 from oncebox.cursor as c
                 left join senders as next on next.turn = oncebox.turn_of(c.workflow, c.topic, c.partition, next.many)
                 left join oncebox.process as reader
                        on reader.id = c.owner and reader.sends and $7 = any(coalesce(reader.takes, reader.workflows))
                       and reader.seen_at > clock_timestamp() - make_interval(secs => $8)
                where c.id = d.cursor) as wanted;
