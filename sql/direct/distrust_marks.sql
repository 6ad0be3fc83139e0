-- Begin a new era of marks after the database failed over: reading starts from the copy, which is whole, because what it
-- vouches for was committed before it. Called by outbox::direct::distrust_marks. $1 cursors. Index: primary key.
with locked as materialized (
    select id from oncebox.cursor where id = any($1) order by id for update
)
update oncebox.cursor as c
   set mark_era = greatest(c.mark_era + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint),
       timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
  from locked
 where c.id = locked.id and c.direct
   and c.timeline is distinct from left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
