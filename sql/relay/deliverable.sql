-- What a process has to look at: cursors whose delivery is free to be taken, and its own with events that wait.
-- Called by outbox::delivery::look, four times a second. $1 workflow, $2 process, $3 lease seconds, $4 cursors it knows it holds,
-- $5 whether order is kept: then retries too need somebody who holds the delivery; where it is not, only those that still wait
-- for their turn, to be let go. $6 seconds after which a silent process counts as gone, $7 whether it takes over from others: not just
-- after an outage, when everybody looks gone to whoever speaks first.
-- Index: delivery_workflow, retry_lane; a row per process.
-- Whoever reads a cursor takes it at once; anybody else only what has work and was left alone for one more lease, because then its ingest
-- owner is gone or never comes (a topic that was deleted, say). Where reading and sending are apart, those that send take turns instead
-- (`next`, else null). What the direct path has stored is all in retry: it needs no delivery.
with senders as materialized (
    select s.id, s.turn, s.many from oncebox.senders($1, $6) as s where s.apart
)
select d.cursor, coalesce(d.owner = $2 and d.cursor = any($4), false) as mine
  from oncebox.delivery as d
  -- Each by its key, also where Postgres knows nothing of the table yet.
 cross join lateral (
       select c.workflow, c.topic, c.partition, c.direct, c.claimed_to, c.next_offset, c.owner
         from oncebox.cursor as c where c.id = d.cursor offset 0
       ) as c
  left join senders as next on next.turn = oncebox.turn_of(c.workflow, c.topic, c.partition, next.many)
 where d.workflow = $1 and not c.direct
   and case
       when d.owner = $2 and d.cursor = any($4) then c.claimed_to < c.next_offset
       when d.owner = $2 then true
       when d.owner is not null and (d.lease_until >= clock_timestamp() or not $7) then false
       when next.id <> $2 then false
       when next.id = $2 and c.owner is not null then true
       when next.id is null and c.owner = $2 then true
       else (d.settled_to < c.next_offset
             or exists (select 1 from oncebox.retry as r
                         where r.cursor = d.cursor and r.lane is not null and ($5 or r.held = 'order')))
            and (next.id is not null
                 or coalesce(d.lease_until, '-infinity') < clock_timestamp() - make_interval(secs => $3)
                    and not exists (
                        select 1 from oncebox.delivery as other
                         where other.workflow = d.workflow and other.owner = c.owner
                           and other.lease_until > clock_timestamp()))
       end;
