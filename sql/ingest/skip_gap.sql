-- Move a cursor forward over offsets that are lost, and note them. Called by outbox::gap::skip.
-- $1 cursor, $2 from, $3 to, $4 reason, $5 action. Index: primary key.
-- The owner's epoch rises, so that whoever was reading finds itself fenced and reads the cursor again. claimed_to stays:
-- events that wait before the gap are claimed as usual.
with moved as (
    update oncebox.cursor as c
       set next_offset = $3,
           claimed_to = case when c.claimed_to = c.next_offset then $3 else c.claimed_to end,
           owner_epoch = greatest(c.owner_epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint),
           delivery_epoch = 0
     where c.id = $1 and c.next_offset = $2 and $3 >= $2
 returning c.id
)
insert into oncebox.gap (cursor, from_offset, to_offset, reason, action)
select moved.id, $2, $3, $4, $5 from moved
returning cursor;
