-- Workflows that have events left and that no process runs. Called by outbox::left::workflows, every second.
-- No parameters. Index: delivery_workflow, primary keys; workflows are few.
select w.id, c.document, w.draining, rest.waiting
  from oncebox.workflow as w
  join oncebox.configuration as c on c.version = w.version
 cross join lateral (
       select coalesce(sum(k.appended - d.completed - d.cancelled - d.discarded - d.suppressed), 0)::bigint as waiting
         from oncebox.delivery as d
         join oncebox.cursor as k on k.id = d.cursor
        where d.workflow = w.id) as rest
 where w.renamed_to is null and rest.waiting > 0
   and not exists (
       select 1 from oncebox.process as p
        where w.id = any(p.workflows) and p.seen_at > clock_timestamp() - interval '10 seconds')
 order by w.id;
