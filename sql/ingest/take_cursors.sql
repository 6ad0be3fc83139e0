-- Take the ingest ownership of cursors. Called by outbox::cursor::take on assignment.
-- $1 cursor ids, $2 process. Index: primary key.
-- The epoch never comes back, even after a failover that lost commits: it is never below the clock. Rows are locked in
-- id order, as every writer of several cursors does. A take at the offset of the last one, without a clean release in
-- between, is counted: a record that kills the process is found by it.
with locked as materialized (
    select id from oncebox.cursor where id = any($1) order by id for update
)
update oncebox.cursor as c
   set owner = $2,
       owner_epoch = greatest(c.owner_epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint),
       taken_times = case when c.taken_offset = c.next_offset then c.taken_times + 1 else 1 end,
       taken_offset = c.next_offset,
       copied_at = clock_timestamp(),
       suspect_offset = case when c.taken_offset = c.next_offset then c.suspect_offset end
  from locked
 where c.id = locked.id
returning c.id, c.owner_epoch, c.next_offset, c.generation, c.taken_times, c.suspect_offset, c.suspect_times,
          c.mark_era, c.direct;
