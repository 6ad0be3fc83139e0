-- Delivered events of today, as many as asked for. Called by bench::growth. $1 first and $2 last offset.
-- The body is that of an event that waits.
with made as (
    insert into oncebox.outbox
           (cursor, record_offset, event_index, generation, day, key, event_type, content_type, source_at, created_at,
            config_version, body)
    select 11, n, 0, 0, timezone('utc', clock_timestamp())::date, s.key, s.event_type, s.content_type, s.source_at,
           clock_timestamp(), 1, s.body
      from generate_series($1::int8, $2::int8) as n, bench_event as s
)
insert into oncebox.ended (cursor, block, event_index, generation, day, bits, again, tried, tried_at)
select 11, n >> 6, 0, 0, timezone('utc', clock_timestamp())::date, bit_or(1::int8 << (n & 63)::int), 0,
       bit_or(1::int8 << (n & 63)::int), 1000 * 1000::int8 * 1700000000 + 200
  from generate_series($1::int8, $2::int8) as n group by n >> 6
