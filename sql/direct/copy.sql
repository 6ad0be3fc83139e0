-- Keep a copy of how far partitions are delivered. Called by outbox::direct::copy, at most every 10 s and on revocation.
-- $1 cursors, $2 owner epochs, $3 offsets (arrays run in step), $4 process. Index: primary keys.
-- Missing from the answer: another process owns the cursor, an operator moved it, or the database failed over and may
-- have lost what was stored since the last copy. Then it is read again from there.
with locked as materialized (
    select id from oncebox.cursor where id = any($1) order by id for update
),
moved as (
    update oncebox.cursor as c
       set next_offset = greatest(c.next_offset, mine.marked), claimed_to = greatest(c.next_offset, mine.marked),
           copied_at = clock_timestamp()
      from locked
      join unnest($1, $2, $3) as mine (id, epoch, marked) on mine.id = locked.id
     where c.id = locked.id and c.direct and c.owner = $4 and c.owner_epoch = mine.epoch
       and c.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
 returning c.id, c.next_offset
),
sorted as materialized (
    select d.cursor, moved.next_offset
      from oncebox.delivery as d
      join moved on moved.id = d.cursor
     order by d.cursor
       for update of d
),
settled as (
    update oncebox.delivery as d
       set settled_to = greatest(d.settled_to, sorted.next_offset)
      from sorted
     where d.cursor = sorted.cursor
)
select moved.id from moved;
