-- Bring the copies of marked offsets up to what Kafka has. Called by outbox::direct::catch_up on assignment.
-- $1 cursors, $2 marked offsets, $3 eras of the marks (arrays run in step). Index: primary keys.
-- All below a mark is delivered or stored, whoever made it, so this needs no owner. A mark of another era is nothing to go
-- by, nor is any mark once the database has failed over: what it vouches for as stored may be gone.
with locked as materialized (
    select id from oncebox.cursor where id = any($1) order by id for update
),
moved as (
    update oncebox.cursor as c
       set next_offset = mark.marked, claimed_to = mark.marked
      from locked
      join unnest($1, $2, $3) as mark (id, marked, era) on mark.id = locked.id
     where c.id = locked.id and c.direct and c.mark_era = mark.era and c.next_offset < mark.marked
       and c.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
 returning c.id, c.next_offset
),
sorted as materialized (
    select d.cursor, moved.next_offset
      from oncebox.delivery as d
      join moved on moved.id = d.cursor
     order by d.cursor
       for update of d
)
update oncebox.delivery as d
   set settled_to = greatest(d.settled_to, sorted.next_offset)
  from sorted
 where d.cursor = sorted.cursor
returning d.cursor;
