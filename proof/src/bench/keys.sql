-- A million keys of other events, of the workflows that come: a lookup goes through all of them. Called by bench::unique. @ROUNDS@: how
-- many workflows share them.
insert into oncebox.seen (workflow, fingerprint, cursor, record_offset, event_index, expires_at)
select 'repeats-full-' || (n % @ROUNDS@), sha256(n::text::bytea), 7, n, 0, now() + interval '29 days'
  from generate_series(1, 1000000) as n;
insert into oncebox.unique_key (workflow, fingerprint)
select 'unique-full-' || (n % @ROUNDS@), sha256(n::text::bytea) from generate_series(1, 1000000) as n;
insert into oncebox.unique_event
       (workflow, fingerprint, cursor, record_offset, event_index, generation, created_at, expires_at)
select 'unique-full-' || (n % @ROUNDS@), sha256(n::text::bytea), 7, n, 0, 0, now() - interval '1 day', now() + interval '29 days'
  from generate_series(1, 1000000) as n;
analyze oncebox.seen;
analyze oncebox.unique_key;
analyze oncebox.unique_event;
