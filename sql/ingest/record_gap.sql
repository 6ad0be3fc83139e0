-- Note offsets that are lost while the cursor stays where it is. Called by outbox::gap::record, second statement: the first
-- has locked the cursor, so that this one sees what others have noted before.
-- $1 cursor, $2 where it must stand, or null for anywhere, $3 to, or null for where it stands, $4 reason, $5 action.
-- Index: primary keys.
-- A loss is found again at each look until somebody decides, and noted at the first; after a move it is another loss.
insert into oncebox.gap (cursor, from_offset, to_offset, reason, action)
select c.id, c.next_offset, coalesce($3, c.next_offset), $4, $5
  from oncebox.cursor as c
 where c.id = $1 and c.next_offset = coalesce($2, c.next_offset)
   and not exists (
       select 1
         from (select g.from_offset, g.reason, g.action
                 from oncebox.gap as g
                where g.cursor = c.id
                order by g.at desc
                limit 1) as last
        where last.from_offset = c.next_offset and last.reason = $4 and last.action = $5);
