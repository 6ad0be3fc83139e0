-- Whether a process sends a workflow's events. Called by outbox::left::is_sent. $1 workflow. A row per process.
select p.id
  from oncebox.process as p
 where $1 = any(p.workflows) and p.sends and p.seen_at > clock_timestamp() - interval '10 seconds'
 limit 1;
