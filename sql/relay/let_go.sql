-- Let go some of what waited for its turn, for an owner who keeps no order. Called by outbox::delivery::let_go, again and again
-- until none is left. $1 cursor, $2 delivery epoch, $3 lane, $4 offset, $5 index and $6 generation to go on after.
-- Index: retry_lane. Answers the last of them.
-- The delivery is locked: somebody who takes it over meanwhile and keeps order waits for this, and nothing is let go behind its
-- back. Rows are locked in the order of their keys, as everywhere.
with held as materialized (
    select d.cursor from oncebox.delivery as d where d.cursor = $1 and d.epoch = $2 and not d.ordered for share
),
few as materialized (
    select r.cursor, r.lane, r.record_offset, r.event_index, r.generation
      from oncebox.retry as r
     where r.cursor = $1 and r.lane is not null and r.held = 'order' and exists (select 1 from held)
       and (r.lane, r.record_offset, r.event_index, r.generation) > ($3, $4, $5, $6)
     order by r.lane, r.record_offset, r.event_index, r.generation
     limit 2000
),
locked as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation
      from few as f
      join oncebox.retry as r on r.cursor = f.cursor and r.record_offset = f.record_offset
       and r.event_index = f.event_index and r.generation = f.generation
     order by r.record_offset, r.event_index, r.generation
       for update of r
),
freed as (
    update oncebox.retry as r
       set state = case when r.due > clock_timestamp() then 'scheduled' else 'available' end, held = null,
           due = greatest(r.due, clock_timestamp())
      from locked as l
     where r.cursor = l.cursor and r.record_offset = l.record_offset and r.event_index = l.event_index
       and r.generation = l.generation and r.held = 'order'
)
select f.lane, f.record_offset, f.event_index, f.generation
  from few as f
 order by f.lane desc, f.record_offset desc, f.event_index desc, f.generation desc
 limit 1;
