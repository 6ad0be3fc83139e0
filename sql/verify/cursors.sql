-- The cursors of a workflow and what is on record of their offsets. Called by verify::outbox. $1 workflow.
-- `is_given`: events over HTTP, which no ledger has. `skipped` are offsets that were left out knowingly, `direct` those that were read without the outbox,
-- `gone` those whose ledger went with a day that was past its retention. Not `are_days_known`: a day is missing of which nobody noted what was
-- in it. Index: cursor_topic, primary keys.
with days as materialized (
    select not exists (
               select 1 from oncebox.kept_day as k
                where not k.is_gone and k.day not in (select w.day from oncebox.whole_day as w)) as are_known
)
select c.id, c.cluster = '' as is_given, c.topic, c.topic_id, c.partition, c.start_offset, c.next_offset, days.are_known as are_days_known,
       case when c.cluster = '' then (select o.record_offset from oncebox.outbox as o where o.cursor = c.id order by o.record_offset limit 1)
            else (select l.from_offset
                    from oncebox.ledger as l
                   where l.cursor = c.id and l.day not in (select k.day from oncebox.kept_day as k where k.is_gone)
                   order by l.from_offset
                   limit 1) end as known_from,
       coalesce(g.offsets, '{}')::text as gone,
       coalesce((select range_agg(int8range(s.from_offset, s.to_offset))
                   from oncebox.gap as s where s.cursor = c.id and s.to_offset > s.from_offset), '{}')::text as skipped,
       (c.direct_ranges + case when c.direct
                               then int8multirange(int8range(least(coalesce(c.direct_since, c.start_offset), c.next_offset), c.next_offset))
                               else '{}' end)::text as direct
  from oncebox.cursor as c
 cross join days
  left join oncebox.gone as g on g.cursor = c.id
 where c.workflow = $1
 order by c.topic, c.topic_id, c.partition;
