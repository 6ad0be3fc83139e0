-- How many events of a cursor are on record as cancelled, and as dead. Called by verify::counters, page after page.
-- $1 cursor; behind which it goes on: $2 offset, $3 index, $4 generation, $5 day; $6 how many rows.
-- As sql/verify/ends.sql. Index: primary keys.
with page as materialized (
    select m.record_offset, m.event_index, m.generation, m.day, m.state
      from oncebox.remark as m
     where m.cursor = $1 and (m.record_offset, m.event_index, m.generation, m.day) > ($2, $3, $4, $5)
       and m.day not in (select k.day from oncebox.kept_day as k where k.is_gone)
     order by m.record_offset, m.event_index, m.generation, m.day
     limit $6
)
select p.record_offset as place, p.event_index, p.generation, p.day, 0::bigint as ended,
       (select count(*) from page as q where q.state = 'cancelled') as cancelled,
       (select count(*) from page as q where q.state = 'discarded') as discarded
  from page as p
 order by p.record_offset desc, p.event_index desc, p.generation desc, p.day desc
 limit 1;
