-- Forget who gave events over HTTP, when that is long ago, a bounded number at a time. What operators changed stays. Called by
-- outbox::seen::prune_audit. $1 limit. Index: audit_at.
delete from oncebox.audit as a
 using (select x.ctid
          from oncebox.audit as x
         where x.action = 'events submitted' and x.at < (select clock_timestamp() - interval '30 days')
         order by x.at
         limit $1
           for update skip locked) as old
 where a.ctid = old.ctid
returning 1 as forgotten;
