-- The workflows that processes run, and whether at most once. Called by outbox::promise::running, at the start and before a reload. No
-- parameters. A row per process; workflows are few. Index: primary keys.
-- Each process says it as its own references are resolved. For a binary that does not say it the configuration speaks that was registered
-- last, as far as it does so without a reference. A process that was killed a moment ago may still be there.
select distinct r.workflow,
       coalesce(r.guarantee, c.document::json #>> '{delivery,guarantee}', '') = 'at-most-once' as at_most_once
  from oncebox.process as p
 cross join unnest(p.workflows, p.guarantees) as r (workflow, guarantee)
  left join oncebox.workflow as w on w.id = r.workflow
  left join oncebox.configuration as c on c.version = w.version
 where p.seen_at > clock_timestamp() - interval '10 seconds';
