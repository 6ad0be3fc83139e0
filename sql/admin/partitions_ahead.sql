-- For how many days partitions exist already. Called by outbox::partitions::ahead.
select (max(to_date(right(c.relname, 10), 'YYYY_MM_DD')) - oncebox.today())::int4 as days
  from pg_inherits as i
  join pg_class as c on c.oid = i.inhrelid
 where i.inhparent = 'oncebox.outbox'::regclass;
