-- Read cursors through the outbox from now on. Called by outbox::direct::leave on assignment, second statement: the first
-- has locked them, so that this one sees what was stored until then. $1 cursors. Index: primary keys. Where events from here on were stored already, what is read now is another generation of them, with
-- the same keys: an event has one place. The owner's epoch rises: whoever still reads without the outbox is fenced.
update oncebox.cursor as c
   set direct = false,
       direct_ranges = c.direct_ranges + int8multirange(
           int8range(least(coalesce(c.direct_since, c.start_offset), c.next_offset), c.next_offset)),
       direct_since = null,
       generation = c.generation + case when exists (
           select 1 from oncebox.spilled as s
            where s.cursor = c.id and s.record_offset >= c.next_offset and s.generation = c.generation)
           then 1000 else 0 end,
       owner_epoch = greatest(c.owner_epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)
 where c.id = any($1) and c.direct;
