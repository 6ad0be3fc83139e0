-- The cursors of a workflow and what is on record of their offsets. Called by verify::cursors. $1 workflow.
-- `is_given`: events over HTTP, which no ledger has. `skipped` are offsets that were left out knowingly, `direct` those that were read without the outbox. Index: cursor_topic, primary keys.
select c.id, c.cluster = '' as is_given, c.topic, c.topic_id, c.partition, c.next_offset,
       case when c.cluster = '' then (select o.record_offset from oncebox.outbox as o where o.cursor = c.id order by o.record_offset limit 1)
            else (select l.from_offset from oncebox.ledger as l where l.cursor = c.id order by l.from_offset limit 1) end as known_from,
       coalesce((select range_agg(int8range(g.from_offset, g.to_offset))
                   from oncebox.gap as g where g.cursor = c.id and g.to_offset > g.from_offset), '{}')::text as skipped,
       (c.direct_ranges + case when c.direct
                               then int8multirange(int8range(least(coalesce(c.direct_since, c.start_offset), c.next_offset), c.next_offset))
                               else '{}' end)::text as direct
  from oncebox.cursor as c
 where c.workflow = $1
 order by c.topic, c.topic_id, c.partition;
