-- Events of one cursor that are stored, by place, each with where it stands. Called by operate::listing.
-- $1 cursor; behind which it goes on: $2 offset, $3 index, $4 generation; $5 how many rows are looked at, $6 states or null.
-- A page may be empty though there are others: what it costs is bounded, not what it finds. Index: primary keys.
with page as materialized (
    select o.cursor, o.record_offset, o.event_index, o.generation, o.day
      from oncebox.outbox as o
     where o.cursor = $1 and (o.record_offset, o.event_index, o.generation) > ($2, $3, $4)
     order by o.record_offset, o.event_index, o.generation
     limit $5
)
select e.cursor, e.record_offset, e.event_index, e.generation, e.workflow, e.key, e.event_type, e.created_at, e.topic, e.partition,
       e.state, e.sends, e.held, e.in_doubt, e.due, e.first_attempt_at, false as is_edge
  from page as p
  join oncebox.event as e
    on e.cursor = p.cursor and e.record_offset = p.record_offset and e.event_index = p.event_index
   and e.generation = p.generation and e.day = p.day
 where $6::text[] is null or e.state = any($6)
 union all
-- The last row that was looked at, where the next page begins, with how many were; nothing when there were none.
select $1, p.record_offset, p.event_index, p.generation, '', '', '', clock_timestamp(), '', 0, '',
       (select count(*) from page)::integer, null, false, null, null, true
  from (select record_offset, event_index, generation from page
         order by record_offset desc, event_index desc, generation desc limit 1) as p
 order by record_offset, event_index, generation, is_edge;
