-- One event that is held because its last attempt is in doubt. Called by outbox::resolve::held.
-- $1 cursor, $2 offset, $3 index, $4 generation. Index: primary keys.
select r.workflow, r.day, r.sends, r.fence, octet_length(o.body) as body_bytes, o.source_at
  from oncebox.retry as r
  join oncebox.outbox as o
    on o.cursor = r.cursor and o.record_offset = r.record_offset and o.event_index = r.event_index
   and o.generation = r.generation and o.day = r.day
 where r.cursor = $1 and r.record_offset = $2 and r.event_index = $3 and r.generation = $4
   and r.state = 'pending' and r.held = 'in_doubt';
