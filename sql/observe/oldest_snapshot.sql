-- How long the oldest transaction on this server has been open: it keeps dead rows alive. Called by outbox::gauges.
select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::float8 as seconds
  from pg_stat_activity
 where backend_xmin is not null and pid <> pg_backend_pid();
