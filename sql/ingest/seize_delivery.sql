-- Take a cursor's delivery from whoever holds it, for a rewind. Called by outbox::rewind, first statement.
-- $1 cursor, $2 where it must stand, or null for anywhere, $3 where it is to go: back. Index: primary keys. Cursor before delivery, as everywhere; the old holder is fenced by the epoch.
with held as materialized (
    select id from oncebox.cursor
     where id = $1 and next_offset = coalesce($2, next_offset) and next_offset > $3
       for update
),
seized as (
    update oncebox.delivery as d
       set epoch = greatest(d.epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)
      from held
     where d.cursor = held.id
 returning d.cursor, d.epoch, d.settled_to
)
update oncebox.cursor as c
   set delivery_epoch = seized.epoch
  from seized
 where c.id = seized.cursor
returning c.workflow, seized.epoch, seized.settled_to, c.claimed_to;
