-- What became of events that came over HTTP, of which no ledger has a row. Called by verify::outbox, page after page.
-- $1 cursor, $2 and $3 the offset and the generation behind which it goes on, $4 how many times ten events.
-- One statement, and so one moment: it may run beside everything else. Each of them is in retry from when it is stored until it ends; those
-- whose body is past its retention are not looked at, and those that operators have made of dead letters are not counted once more. Rows
-- are findings, as in page.sql. Index: primary keys.
with page as materialized (
    select o.record_offset, o.event_index, o.generation, o.day
      from oncebox.outbox as o
     where o.cursor = $1 and (o.record_offset, o.generation) > ($2, $3)
     order by o.record_offset, o.generation
     limit $4 * 10
),
fates as materialized (
    select p.record_offset, p.event_index, p.generation, p.day,
           case when exists (
                     select 1 from oncebox.ended as e
                      where e.cursor = $1 and e.block = p.record_offset >> 6 and e.event_index = p.event_index
                        and e.generation = p.generation and e.day = p.day and oncebox.has(e.bits, p.record_offset)) then 'ended'
                when exists (
                     select 1 from oncebox.retry as r
                      where r.cursor = $1 and r.record_offset = p.record_offset and r.event_index = p.event_index
                        and r.generation = p.generation) then 'waiting'
                else 'stuck' end as fate
      from page as p
),
ended as materialized (
    select f.record_offset, f.event_index, f.generation,
           case when m.letter = 'replayed' then 'replayed' else coalesce(m.state, 'completed') end as state,
           m.state = 'discarded' and m.letter is null
           and not exists (select 1 from oncebox.dead_letter as d
                            where d.cursor = $1 and d.record_offset = f.record_offset and d.event_index = f.event_index
                              and d.generation = f.generation) as is_bare
      from fates as f
      left join oncebox.remark as m
        on m.cursor = $1 and m.record_offset = f.record_offset and m.event_index = f.event_index
       and m.generation = f.generation and m.day = f.day
     where f.fate = 'ended'
)
select 'edge' as kind, p.record_offset as from_offset, p.record_offset + 1 as to_offset, 0 as event_index, p.generation, 0::bigint as events
  from (select record_offset, generation from page order by record_offset desc, generation desc limit 1) as p
 union all
select e.state, 0, 0, 0, 0, count(*) from ended as e where e.generation = 0 group by e.state
 union all
select 'waiting', 0, 0, 0, 0, count(*) from fates as f where f.fate = 'waiting' and f.generation = 0
 union all
select 'stuck', f.record_offset, f.record_offset + 1, f.event_index, f.generation, 1 from fates as f where f.fate = 'stuck'
 union all
select 'no_letter', e.record_offset, e.record_offset + 1, e.event_index, e.generation, 1 from ended as e where e.is_bare;
