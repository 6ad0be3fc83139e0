-- What became of the records of some appends. Called by verify::outbox, page after page.
-- $1 cursor, $2 and $3 the first offset and the generation behind which it goes on, $4 how many appends.
-- One statement, and so one moment: it may run beside everything else. Rows are findings: a kind, offsets [from, to), and how many.
-- Without the days that are past their retention, some of which may still be there. Index: primary keys.
with page as materialized (
    select l.from_offset, l.to_offset, l.generation, l.day, l.events, l.dead, l.filtered, l.tombstones, l.suppressed
      from oncebox.ledger as l
     where l.cursor = $1 and (l.from_offset, l.generation) > ($2, $3)
       and l.day not in (select k.day from oncebox.kept_day as k where k.is_gone)
     order by l.from_offset, l.generation
     limit $4
),
standing as materialized (
    select d.settled_to from oncebox.delivery as d where d.cursor = $1
),
stored as materialized (
    select o.record_offset, o.event_index, o.generation, o.day, p.from_offset
      from page as p
      join oncebox.outbox as o
        on o.cursor = $1 and o.generation = p.generation and o.day = p.day
       and o.record_offset >= p.from_offset and o.record_offset < p.to_offset
),
ends as materialized (
    select (e.block << 6) + n.bit as record_offset, e.event_index, e.generation, e.day, p.from_offset
      from page as p
      join oncebox.ended as e
        on e.cursor = $1 and e.generation = p.generation and e.day = p.day
       and e.block >= p.from_offset >> 6 and e.block <= (p.to_offset - 1) >> 6
     cross join generate_series(0, 63) as n (bit)
     where oncebox.has(e.bits, n.bit)
       and (e.block << 6) + n.bit >= p.from_offset and (e.block << 6) + n.bit < p.to_offset
),
fates as materialized (
    select s.record_offset, s.event_index, s.generation, coalesce(s.day, e.day) as day, s.from_offset,
           case when e.record_offset is not null then 'ended'
                when r.cursor is not null or s.record_offset >= (select standing.settled_to from standing) then 'waiting'
                else 'stuck' end as fate
      from stored as s
      left join ends as e
        on e.record_offset = s.record_offset and e.event_index = s.event_index and e.generation = s.generation and e.day = s.day
      left join oncebox.retry as r
        on r.cursor = $1 and r.record_offset = s.record_offset and r.event_index = s.event_index and r.generation = s.generation
    union all
    -- The body is past its retention, or there never was one.
    select e.record_offset, e.event_index, e.generation, e.day, e.from_offset, 'ended'
      from ends as e
     where not exists (
           select 1 from stored as s
            where s.record_offset = e.record_offset and s.event_index = e.event_index and s.generation = e.generation
              and s.day = e.day)
),
ended as materialized (
    select f.record_offset, f.event_index, f.generation, case when m.letter = 'replayed' then 'replayed' else coalesce(m.state, 'completed') end as state,
           m.state = 'discarded' and m.letter is null
           and not exists (select 1 from oncebox.dead_letter as d
                            where d.cursor = $1 and d.record_offset = f.record_offset and d.event_index = f.event_index
                              and d.generation = f.generation) as is_bare
      from fates as f
      left join oncebox.remark as m
        on m.cursor = $1 and m.record_offset = f.record_offset and m.event_index = f.event_index
       and m.generation = f.generation and m.day = f.day
     where f.fate = 'ended'
),
-- What operators have made of dead letters, which no append knows of.
again as materialized (
    select o.record_offset, o.event_index, o.generation,
           exists (
               select 1 from oncebox.retry as r
                where r.cursor = o.cursor and r.record_offset = o.record_offset and r.event_index = o.event_index
                  and r.generation = o.generation) as waits
      from page as p
      join oncebox.outbox as o
        on o.cursor = $1 and o.record_offset >= p.from_offset and o.record_offset < p.to_offset
       and o.generation > p.generation and o.generation < p.generation + 1000
     where not exists (
           select 1 from oncebox.ended as e
            where e.cursor = o.cursor and e.block = o.record_offset >> 6 and e.event_index = o.event_index
              and e.generation = o.generation and e.day = o.day and oncebox.has(e.bits, o.record_offset))
),
present as materialized (
    select f.generation, range_agg(int8range(f.record_offset, f.record_offset + 1)) as offsets from fates as f group by f.generation
),
without as materialized (
    select p.generation,
           coalesce((select range_agg(r) from page as q, unnest(q.filtered) as r where q.generation = p.generation), '{}')
           + coalesce((select range_agg(r) from page as q, unnest(q.tombstones) as r where q.generation = p.generation), '{}')
           + coalesce((select range_agg(r) from page as q, unnest(q.suppressed) as r where q.generation = p.generation), '{}') as offsets,
           range_agg(int8range(p.from_offset, p.to_offset)) as all_of_it
      from page as p
     group by p.generation
),
lengths as (
    select (select coalesce(sum(upper(r) - lower(r)), 0) from page as q, unnest(q.filtered) as r) as filtered,
           (select coalesce(sum(upper(r) - lower(r)), 0) from page as q, unnest(q.tombstones) as r) as tombstones,
           (select coalesce(sum(upper(r) - lower(r)), 0) from page as q, unnest(q.suppressed) as r) as suppressed
)
select 'edge' as kind, p.from_offset, p.to_offset, 0 as event_index, p.generation, 0::bigint as events
  from (select from_offset, to_offset, generation from page order by from_offset desc, generation desc limit 1) as p
 union all
select 'reach', lower(r), upper(r), 0, 0, 0
  from (select range_agg(int8range(p.from_offset, p.to_offset)) as offsets from page as p) as w, unnest(w.offsets) as r
 union all
select e.state, 0, 0, 0, 0, count(*) from ended as e group by e.state
 union all
select 'waiting', 0, 0, 0, 0, count(*) from fates as f where f.fate = 'waiting'
 union all
select 'filtered', 0, 0, 0, 0, l.filtered::bigint from lengths as l
 union all
select 'tombstones', 0, 0, 0, 0, l.tombstones::bigint from lengths as l
 union all
select 'suppressed', 0, 0, 0, 0, l.suppressed::bigint from lengths as l
 union all
-- Records without any disposition: there may be none in Kafka at these offsets.
select 'none', lower(r), upper(r), 0, w.generation, upper(r) - lower(r)
  from without as w
  left join present as p on p.generation = w.generation,
       unnest(w.all_of_it - w.offsets - coalesce(p.offsets, '{}')) as r
 union all
select 'twice', lower(r), upper(r), 0, w.generation, upper(r) - lower(r)
  from without as w
  join present as p on p.generation = w.generation,
       unnest(w.offsets * p.offsets) as r
 union all
select 'stuck', f.record_offset, f.record_offset + 1, f.event_index, f.generation, 1 from fates as f where f.fate = 'stuck'
 union all
select 'stuck', a.record_offset, a.record_offset + 1, a.event_index, a.generation, 1 from again as a where not a.waits
 union all
select 'again', 0, 0, 0, 0, count(*) from again as a where a.waits
 union all
select 'no_letter', e.record_offset, e.record_offset + 1, e.event_index, e.generation, 1 from ended as e where e.is_bare
 union all
-- Fewer or more events than the append stored.
select 'miscounted', p.from_offset, p.to_offset, 0, p.generation, counted.events - p.events - p.dead
  from page as p
 cross join lateral (
       select count(*) as events from fates as f where f.from_offset = p.from_offset and f.generation = p.generation) as counted
 where counted.events <> p.events + p.dead;
