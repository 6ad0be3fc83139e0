-- How many events of a cursor have ended, however. Called by verify::counters, page after page.
-- $1 cursor; behind which it goes on: $2 block, $3 index, $4 generation, $5 day; $6 how many rows, each of 64 offsets.
-- Without the days that are past their retention, some of which may still be there. The place in the answer is the last that was looked
-- at; no row when there was none. Index: primary keys.
with page as materialized (
    select e.block, e.event_index, e.generation, e.day, e.bits
      from oncebox.ended as e
     where e.cursor = $1 and (e.block, e.event_index, e.generation, e.day) > ($2, $3, $4, $5)
       and e.day not in (select k.day from oncebox.kept_day as k where k.is_gone)
     order by e.block, e.event_index, e.generation, e.day
     limit $6
)
select p.block as place, p.event_index, p.generation, p.day,
       (select sum(bit_count(q.bits::bit(64))) from page as q)::bigint as ended, 0::bigint as cancelled, 0::bigint as discarded
  from page as p
 order by p.block desc, p.event_index desc, p.generation desc, p.day desc
 limit 1;
