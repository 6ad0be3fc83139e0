-- Undelivered events of one cursor that have a life of their own, by place. Called by operate::listing.
-- $1 cursor; behind which it goes on: $2 offset, $3 index, $4 generation; $5 how many rows are looked at, $6 states.
-- As sql/operate/stored_events.sql. Index: primary keys.
with page as materialized (
    select r.cursor, r.record_offset, r.event_index, r.generation, r.day
      from oncebox.retry as r
     where r.cursor = $1 and (r.record_offset, r.event_index, r.generation) > ($2, $3, $4)
     order by r.record_offset, r.event_index, r.generation
     limit $5
)
select e.cursor, e.record_offset, e.event_index, e.generation, e.workflow, e.key, e.event_type, e.created_at, e.topic, e.partition,
       e.state, e.sends, e.held, e.in_doubt, e.due, e.first_attempt_at, false as is_edge
  from page as p
  join oncebox.event as e
    on e.cursor = p.cursor and e.record_offset = p.record_offset and e.event_index = p.event_index
   and e.generation = p.generation and e.day = p.day
 where e.state = any($6)
 union all
select $1, p.record_offset, p.event_index, p.generation, '', '', '', clock_timestamp(), '', 0, '',
       (select count(*) from page)::integer, null, false, null, null, true
  from (select record_offset, event_index, generation from page
         order by record_offset desc, event_index desc, generation desc limit 1) as p
 order by record_offset, event_index, generation, is_edge;
