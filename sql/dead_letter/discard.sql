-- Remove a dead letter for good. Called by dead_letter::discard. $1 cursor, $2 offset, $3 index, $4 generation, $5 who.
-- One statement: it goes, and who did it is on record. A lane that it kept shut is found open by its owner's next look.
-- Index: primary keys.
with taken as (
    delete from oncebox.dead_letter as d
     where d.cursor = $1 and d.record_offset = $2 and d.event_index = $3 and d.generation = $4
 returning d.cursor, d.record_offset, d.event_index, d.generation, d.day, d.workflow
),
remarked as (
    update oncebox.remark as r
       set letter = 'discarded'
      from taken as t
     where r.cursor = t.cursor and r.record_offset = t.record_offset and r.event_index = t.event_index
       and r.generation = t.generation and r.day = t.day
),
audited as (
    insert into oncebox.audit (who, action, workflow, detail)
    select $5, 'dead letter discarded', taken.workflow,
           oncebox.event_id(taken.cursor, taken.record_offset, taken.event_index, taken.generation)
      from taken
)
select workflow from taken;
