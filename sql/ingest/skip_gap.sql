-- Move a cursor forward over offsets that are lost or unwanted, and note them. Called by outbox::gap::move_to.
-- $1 cursor, $2 where it must stand, or null for anywhere, $3 to, $4 reason, $5 action. Index: primary key.
-- The owner's epoch rises, so that whoever was reading finds itself fenced and reads the cursor again. claimed_to stays:
-- events that wait before the gap are claimed as usual. What is marked in Kafka of the direct path no longer counts: the
-- cursor may have been a copy of an older mark.
with standing as materialized (
    select id, next_offset from oncebox.cursor where id = $1 for update
),
moved as (
    update oncebox.cursor as c
       set next_offset = $3,
           claimed_to = case when c.claimed_to = c.next_offset then $3 else c.claimed_to end,
           owner_epoch = greatest(c.owner_epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint),
           delivery_epoch = 0,
           taken_offset = null, taken_times = 0, suspect_offset = null, suspect_times = 0,
           mark_era = greatest(c.mark_era + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)
      from standing
     where c.id = standing.id and standing.next_offset = coalesce($2, standing.next_offset) and $3 >= standing.next_offset
 returning c.id, standing.next_offset as from_offset
)
insert into oncebox.gap (cursor, from_offset, to_offset, reason, action)
select moved.id, moved.from_offset, $3, $4, $5 from moved
returning cursor;
