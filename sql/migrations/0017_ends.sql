-- Ends that are asked for twice, and the guarantee under which each process runs a workflow. Run by outbox::migrate in one transaction;
-- `oncebox.` is replaced by the configured schema.

-- The guarantee that each process gives each of its workflows, in their order, with references resolved: two that have the same document
-- may still not mean the same. Null: a binary that does not tell.
alter table oncebox.process add column guarantees text[];

-- End events: all those that had not ended before, which are in the answer. Only for whoever has locked the deliveries.
-- The function of 0007_blocks.sql. After a failover that lost commits an event is stored and sent anew: two answers to it may be asked for
-- together, and it ends once. The second would have been refused, and all that was asked for with it.
create or replace function oncebox.finish(
    bigint[], bigint[], integer[], integer[], date[], text, integer[], integer[]
) returns table (cursor bigint, record_offset bigint, event_index integer, generation integer, day date)
language plpgsql set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
    return query
    with ending as materialized (
        select unnest($1) as cursor, unnest($2) as record_offset, unnest($3) as event_index, unnest($4) as generation,
               unnest($5) as day, unnest($7) as sends, unnest($8) as status
    ),
    marked as (
        insert into oncebox.ended as b (cursor, block, event_index, generation, day, bits, again, tried, tried_at)
        select e.cursor, e.record_offset >> 6, e.event_index, e.generation, e.day,
               bit_or(1::bigint << (e.record_offset & 63)::integer), 0, 0, 0
          from ending as e
         group by e.cursor, e.record_offset >> 6, e.event_index, e.generation, e.day
         order by e.cursor, e.record_offset >> 6, e.event_index, e.generation, e.day
            on conflict (cursor, block, event_index, generation, day) do update
           set bits = b.bits | excluded.bits, again = b.bits & excluded.bits
     returning cursor, block, event_index, generation, day, again
    ),
    first as materialized (
        select distinct on (e.cursor, e.record_offset, e.event_index, e.generation, e.day)
               e.cursor, e.record_offset, e.event_index, e.generation, e.day, e.sends, e.status
          from ending as e
          join marked as m
            on m.cursor = e.cursor and m.block = e.record_offset >> 6 and m.event_index = e.event_index
           and m.generation = e.generation and m.day = e.day
         where not oncebox.has(m.again, e.record_offset)
         order by e.cursor, e.record_offset, e.event_index, e.generation, e.day
    ),
    remarked as (
        insert into oncebox.remark (cursor, record_offset, event_index, generation, day, state, sends, status, at)
        select f.cursor, f.record_offset, f.event_index, f.generation, f.day, $6, f.sends, f.status, clock_timestamp()
          from first as f
    )
    select f.cursor, f.record_offset, f.event_index, f.generation, f.day from first as f;
end
$$;

update oncebox.schema_version set version = 17;
