-- Let go some of what waited for its turn, for an owner who keeps no order. Called by outbox::delivery::let_go, again and again
-- until none is left. $1 cursor, $2 delivery epoch, $3 how many. Index: retry_lane.
-- The delivery is locked: somebody who takes it over meanwhile and keeps order waits for this, and nothing is let go behind its
-- back.
with held as materialized (
    select d.cursor from oncebox.delivery as d where d.cursor = $1 and d.epoch = $2 and not d.ordered for share
),
few as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation
      from held
      join oncebox.retry as r on r.cursor = held.cursor
     where r.lane is not null and r.held = 'order'
     limit $3
       for update of r
)
update oncebox.retry as r
   set state = case when r.due > clock_timestamp() then 'scheduled' else 'available' end, held = null,
       due = greatest(r.due, clock_timestamp())
  from few as s
 where r.cursor = s.cursor and r.record_offset = s.record_offset and r.event_index = s.event_index
   and r.generation = s.generation and r.held = 'order'
returning r.record_offset;
