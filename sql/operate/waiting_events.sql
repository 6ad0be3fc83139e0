-- Undelivered events of a workflow in one state that have a life of their own, by place; without those in doubt that wait for somebody's
-- word, which are sql/operate/held_events.sql. Called by operate::listing. $1 workflow, $2 state; behind which it goes on: $3 cursor,
-- $4 offset, $5 index, $6 generation; $7 limit.
-- The index of states knows no places: all of a state are read before they are put in order. The state is asked for as a range and in order:
-- no plan goes through the table then, however many others there are. The last row says how many were read. Beyond
-- 10,000 there is nothing else in the answer: then sql/operate/retry_events.sql goes from cursor to cursor. Index: retry_state, primary keys.
with few as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation, r.day
      from oncebox.retry as r
     where r.workflow = $1 and r.state between $2 and $2 and r.held is distinct from 'in_doubt'
     order by r.state
     limit 10001
),
page as (
    select e.cursor, e.record_offset, e.event_index, e.generation, e.workflow, e.key, e.event_type, e.created_at, e.topic, e.partition,
           e.state, e.sends, e.held, e.in_doubt, e.due, e.first_attempt_at
      from (select f.cursor, f.record_offset, f.event_index, f.generation, f.day
              from few as f
             where (f.cursor, f.record_offset, f.event_index, f.generation) > ($3, $4, $5, $6)
               and (select count(*) from few) <= 10000
             order by f.cursor, f.record_offset, f.event_index, f.generation) as b
      join oncebox.event as e
        on e.cursor = b.cursor and e.record_offset = b.record_offset and e.event_index = b.event_index
       and e.generation = b.generation and e.day = b.day
     where e.state = $2
     order by b.cursor, b.record_offset, b.event_index, b.generation
     limit $7
)
select p.cursor, p.record_offset, p.event_index, p.generation, p.workflow, p.key, p.event_type, p.created_at, p.topic, p.partition,
       p.state, p.sends, p.held, p.in_doubt, p.due, p.first_attempt_at, false as is_edge
  from page as p
 union all
select $3, $4, $5, $6, '', '', '', clock_timestamp(), '', 0, '', (select count(*) from few)::integer, null, false, null, null, true
 order by is_edge, cursor, record_offset, event_index, generation;
