-- Let the next event of each lane go, where nothing is before it, and say which lanes still have any. Called by
-- outbox::lane::open, after something of a lane has ended, and now and then. $1 cursors, $2 lanes, $3 delivery epochs,
-- $4 process. Index: retry_lane, retry_let_go, dead_letter_blocks, primary keys.
-- Only for whoever holds the delivery, on the server that it was taken from: to anybody else a lane is busy. The first
-- that waits is released when it is the first of all that are stored, none of them was let go (a replay may come before one
-- that was), and no dead letter keeps the lane shut. A first that is done
-- already (a late answer) goes. One with a delay is not due before its time.
with asked as materialized (
    select l.cursor, l.lane, d.cursor is not null as mine
      from unnest($1, $2, $3) as l (cursor, lane, epoch)
      left join oncebox.delivery as d
        on d.cursor = l.cursor and d.epoch = l.epoch and d.owner = $4
       and d.timeline = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
),
first as materialized (
    select a.cursor, a.lane, a.mine, r.record_offset, r.event_index, r.generation, r.state, r.held,
           exists (select 1 from oncebox.dead_letter as b
                    where b.cursor = a.cursor and b.lane = a.lane and b.blocks) as shut,
           exists (select 1 from oncebox.done as d
                    where d.cursor = a.cursor and d.record_offset = r.record_offset and d.event_index = r.event_index
                      and d.generation = r.generation and d.day = r.day) as over,
           exists (select 1 from oncebox.retry as g
                    where g.cursor = a.cursor and g.lane = a.lane and g.state <> 'pending') as under_way
      from asked as a
      left join lateral (
           select q.record_offset, q.event_index, q.generation, q.day, q.state, q.held
             from oncebox.retry as q
            where q.cursor = a.cursor and q.lane = a.lane
            order by q.record_offset, q.event_index, q.generation desc
            limit 1) as r on true
),
cleared as (
    delete from oncebox.retry as r
     using first as f
     where r.cursor = f.cursor and r.record_offset = f.record_offset and r.event_index = f.event_index
       and r.generation = f.generation and f.mine and f.over and r.state <> 'active'
),
opened as (
    update oncebox.retry as r
       set state = case when r.due > clock_timestamp() then 'scheduled' else 'available' end, held = null,
           due = greatest(r.due, clock_timestamp())
      from first as f
     where r.cursor = f.cursor and r.record_offset = f.record_offset and r.event_index = f.event_index
       and r.generation = f.generation and f.mine and not f.over and not f.under_way
       and f.state = 'pending' and f.held = 'order' and not f.shut
       and r.state = 'pending' and r.held = 'order'
 returning r.cursor
)
select f.cursor, f.lane, (select count(*) from opened) as opened
  from first as f
 where f.record_offset is not null or f.shut or not f.mine;
