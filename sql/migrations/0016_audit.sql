-- The audit names events by the ids that people know. Run by outbox::migrate in one transaction; `oncebox.` is replaced by the configured
-- schema.
--
-- What was put on record before keeps the names that it has: cursor, offset and index as numbers. A binary of before works with this schema.

-- An event's id, as src/event/place.rs writes it: the cursor as thirteen digits in base32, the offset, the index, and the generation of one
-- that was made again.
create function oncebox.event_id(at_cursor bigint, at_offset bigint, at_index integer, at_generation integer) returns text
language sql immutable as $$
    select string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', ((at_cursor >> (5 * d.digit)) & 31)::integer + 1, 1), ''
                      order by d.digit desc)
           || '-' || at_offset::text || '-' || at_index::text
           || case when at_generation > 0 then '.r' || at_generation::text else '' end
      from generate_series(0, 12) as d (digit)
$$;

-- The function of 0011_unique.sql, see sql/operate/cancel.sql: what it puts on record names the event as everybody does.
create or replace function oncebox.cancel_event(
    at_cursor bigint, at_offset bigint, at_index integer, at_generation integer, by_whom text
) returns text
language plpgsql as $$
declare
    standing record;
    over text;
    kept record;
begin
    select c.claimed_to, c.workflow, c.direct into standing from oncebox.cursor as c where c.id = at_cursor for update;
    if not found then
        return 'unknown';
    end if;
    perform 1 from oncebox.delivery as d where d.cursor = at_cursor for update;
    select coalesce(m.state, 'completed') into over
      from oncebox.ended as e
      left join oncebox.remark as m
        on m.cursor = e.cursor and m.record_offset = at_offset and m.event_index = e.event_index and m.generation = e.generation
       and m.day = e.day
     where e.cursor = at_cursor and e.block = at_offset >> 6 and e.event_index = at_index and e.generation = at_generation
       and oncebox.has(e.bits, at_offset)
     limit 1;
    if over is not null then
        return over;
    end if;
    if oncebox.cancel_waiting(at_cursor, at_offset, at_index, at_generation) then
        insert into oncebox.audit (who, action, workflow, detail)
        values (by_whom, 'event cancelled', standing.workflow, oncebox.event_id(at_cursor, at_offset, at_index, at_generation));
        return 'cancelled';
    end if;
    select o.day, octet_length(o.body) as bytes, o.delayed into kept
      from oncebox.outbox as o
     where o.cursor = at_cursor and o.record_offset = at_offset and o.event_index = at_index and o.generation = at_generation
     limit 1;
    if not found then
        return 'unknown';
    end if;
    insert into oncebox.cancel as x (cursor, record_offset, event_index, generation, workflow, who)
    values (at_cursor, at_offset, at_index, at_generation, standing.workflow, by_whom)
        on conflict on constraint cancel_pkey do nothing;
    if at_offset < standing.claimed_to or kept.delayed or standing.direct then
        insert into oncebox.audit (who, action, workflow, detail)
        values (by_whom, 'cancel requested', standing.workflow, oncebox.event_id(at_cursor, at_offset, at_index, at_generation));
        return 'requested';
    end if;
    perform 1 from oncebox.finish(array[at_cursor], array[at_offset], array[at_index], array[at_generation], array[kept.day], 'cancelled',
                                  array[0], array[null::integer]);
    update oncebox.delivery as d
       set cancelled = d.cancelled + 1, settled_bytes = d.settled_bytes + kept.bytes
     where d.cursor = at_cursor;
    update oncebox.cursor as c set cancels = c.cancels + 1 where c.id = at_cursor;
    insert into oncebox.audit (who, action, workflow, detail)
    values (by_whom, 'event cancelled', standing.workflow, oncebox.event_id(at_cursor, at_offset, at_index, at_generation));
    return 'cancelled';
end
$$;

update oncebox.schema_version set version = 16;
