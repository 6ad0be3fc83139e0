-- Take a cursor's delivery from whoever holds it, to read on without the outbox. Called by outbox::direct::enter, first
-- statement. $1 cursor. Index: primary keys. Cursor before delivery, as everywhere; the old holder is fenced by the epoch.
with held as materialized (
    select id from oncebox.cursor where id = $1 and not direct for update
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
