-- Return the claimed events that were never sent: they are the end of the range. Called by outbox::delivery::give_back.
-- $1 cursor, $2 delivery epoch, $3 first offset that was never sent, as far as the caller knows. Index: primary keys.
-- A record whose events were given lives of their own is not given back, even if the caller never heard that they were:
-- they are in retry, or were sent from there. Events with a delay have always been, and no claim covers them.
update oncebox.cursor as c
   set claimed_to = greatest(
           least(c.claimed_to, $3),
           (select max(r.record_offset) + 1 from oncebox.retry as r
             where r.cursor = $1 and r.record_offset >= $3 and r.record_offset < c.claimed_to
               and r.generation = c.generation
               and not exists (
                   select 1 from oncebox.outbox as o
                    where o.cursor = $1 and o.record_offset = r.record_offset and o.event_index = r.event_index
                      and o.generation = r.generation and o.day = r.day and o.delayed)),
           (select max(d.record_offset) + 1 from oncebox.done as d
             where d.cursor = $1 and d.block >= $3 >> 6 and d.block <= c.claimed_to >> 6
               and d.record_offset >= $3 and d.record_offset < c.claimed_to
               and d.generation = c.generation and d.sends > 0
               and not exists (
                   select 1 from oncebox.outbox as o
                    where o.cursor = $1 and o.record_offset = d.record_offset and o.event_index = d.event_index
                      and o.generation = d.generation and o.day = d.day and o.delayed))),
       delivery_epoch = 0
 where c.id = $1 and c.delivery_epoch = $2;
