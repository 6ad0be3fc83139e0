-- Forget changes whose time is up, a bounded number at a time. Called by outbox::seen::prune. $1 limit.
-- Index: seen_expiry.
delete from oncebox.seen as s
 using (select x.workflow, x.fingerprint
          from oncebox.seen as x
         where x.expires_at <= (select clock_timestamp())
         order by x.expires_at
         limit $1
           for update skip locked) as old
 where s.workflow = old.workflow and s.fingerprint = old.fingerprint
returning 1 as forgotten;
