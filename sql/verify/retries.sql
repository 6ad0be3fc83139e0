-- Events of a cursor that have a life of their own: whether each is stored, and whether an append tells of it. Called by verify::places,
-- page after page. $1 cursor; behind which it goes on: $2 offset, $3 index, $4 generation; $5 how many.
-- One statement, and so one moment: it may run beside everything else. Rows are findings, as in page.sql: those that are not stored, which
-- nothing can deliver ('unstored'), and how many are in no append that page.sql looks at ('beside'): events over HTTP, of the direct path,
-- and made of dead letters whose record is past its retention. What has ended is forgotten by the next claim. offset 0: each is looked up by
-- itself. Index: primary keys.
with gone as materialized (
    select k.day from oncebox.kept_day as k where k.is_gone
),
page as materialized (
    select r.record_offset, r.event_index, r.generation, r.day
      from oncebox.retry as r
     where r.cursor = $1 and (r.record_offset, r.event_index, r.generation) > ($2, $3, $4)
     order by r.record_offset, r.event_index, r.generation
     limit $5
),
waiting as materialized (
    select p.record_offset, p.event_index, p.generation, coalesce(a.to_offset > p.record_offset, false) as is_told,
           exists (
               select 1 from oncebox.outbox as o
                where o.cursor = $1 and o.record_offset = p.record_offset and o.event_index = p.event_index
                  and o.generation = p.generation and o.day = p.day
               offset 0) as is_stored
      from page as p
      left join lateral (
           select l.to_offset
             from oncebox.ledger as l
            where l.cursor = $1 and l.from_offset <= p.record_offset and l.generation = p.generation - p.generation % 1000
              and l.day not in (select gone.day from gone)
            order by l.from_offset desc
            limit 1) as a on true
     where not exists (
           select 1 from oncebox.ended as e
            where e.cursor = $1 and e.block = p.record_offset >> 6 and e.event_index = p.event_index
              and e.generation = p.generation and e.day = p.day and oncebox.has(e.bits, p.record_offset)
           offset 0)
)
select 'edge' as kind, p.record_offset, p.event_index, p.generation, 0::bigint as events
  from (select record_offset, event_index, generation from page
         order by record_offset desc, event_index desc, generation desc limit 1) as p
 union all
select 'unstored', w.record_offset, w.event_index, w.generation, 1 from waiting as w where not w.is_stored
 union all
select 'beside', 0, 0, 0, count(*) from waiting as w where w.is_stored and not w.is_told;
