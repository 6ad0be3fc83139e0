-- Take places for events over HTTP. Called by outbox::submit, first of the transaction that stores them.
-- $1 cursors, $2 how many events of each.
-- Never one twice, also after a failover that lost commits: an offset is at least the time. All events of such a cursor are in retry from
-- when they are stored, so that nothing of it is ever claimed as a range. Rows are locked in id order. Index: primary key.
with durable as materialized (
    select set_config('synchronous_commit',
                      case current_setting('synchronous_commit') when 'off' then 'on'
                           else current_setting('synchronous_commit') end, true) as level,
           (extract(epoch from clock_timestamp()) * 1000000)::bigint as micros
),
locked as materialized (
    select c.id, durable.micros from oncebox.cursor as c cross join durable where c.id = any($1) order by c.id for update of c
)
update oncebox.cursor as c
   set next_offset = greatest(c.next_offset, locked.micros) + b.events, claimed_to = greatest(c.next_offset, locked.micros) + b.events
  from locked
  join unnest($1, $2) as b (id, events) on b.id = locked.id
 where c.id = locked.id
returning c.id, c.next_offset - b.events as first_offset, c.next_offset;
