-- Dead letters of a cursor whose event counts as delivered. Called by verify::places, page after page.
-- $1 cursor; behind which it goes on: $2 offset, $3 index, $4 generation; $5 how many.
-- One statement, and so one moment. Only where what is known of its event's end is not past its retention. offset 0: each is looked up by
-- itself. Index: primary keys.
with page as materialized (
    select d.record_offset, d.event_index, d.generation, d.day
      from oncebox.dead_letter as d
     where d.cursor = $1 and (d.record_offset, d.event_index, d.generation) > ($2, $3, $4)
     order by d.record_offset, d.event_index, d.generation
     limit $5
)
select 'edge' as kind, p.record_offset, p.event_index, p.generation, 0::bigint as events
  from (select record_offset, event_index, generation from page
         order by record_offset desc, event_index desc, generation desc limit 1) as p
 union all
select 'delivered', p.record_offset, p.event_index, p.generation, 1
  from page as p
 where p.day in (select w.day from oncebox.whole_day as w)
   and p.day not in (select k.day from oncebox.kept_day as k where k.is_gone)
   and exists (
       select 1 from oncebox.ended as e
        where e.cursor = $1 and e.block = p.record_offset >> 6 and e.event_index = p.event_index
          and e.generation = p.generation and e.day = p.day and oncebox.has(e.bits, p.record_offset)
       offset 0)
   and not exists (
       select 1 from oncebox.remark as m
        where m.cursor = $1 and m.record_offset = p.record_offset and m.event_index = p.event_index
          and m.generation = p.generation and m.day = p.day and m.state = 'discarded'
       offset 0);
