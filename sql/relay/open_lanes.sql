-- Let the next event of each lane go, where nothing is before it, and say which lanes still have any. Called by
-- outbox::lane::open, after something of a lane has ended, and now and then. $1 cursors, $2 lanes. Index: retry_lane,
-- dead_letter_blocks. Harmless at any time and by anybody: the first that waits is only released when it is the first of
-- all that are stored, and no dead letter keeps the lane shut.
with first as materialized (
    select l.cursor, l.lane, r.record_offset, r.event_index, r.generation, r.state, r.held,
           exists (select 1 from oncebox.dead_letter as b
                    where b.cursor = l.cursor and b.lane = l.lane and b.blocks) as shut
      from unnest($1, $2) as l (cursor, lane)
      left join lateral (
           select q.record_offset, q.event_index, q.generation, q.state, q.held
             from oncebox.retry as q
            where q.cursor = l.cursor and q.lane = l.lane
            order by q.record_offset, q.event_index, q.generation desc
            limit 1) as r on true
),
opened as (
    update oncebox.retry as r
       set state = 'available', held = null, due = clock_timestamp()
      from first as f
     where r.cursor = f.cursor and r.record_offset = f.record_offset and r.event_index = f.event_index
       and r.generation = f.generation and f.state = 'pending' and f.held = 'order' and not f.shut
       and r.state = 'pending' and r.held = 'order'
 returning r.cursor
)
select f.cursor, f.lane, (select count(*) from opened) as opened
  from first as f
 where f.record_offset is not null or f.shut;
