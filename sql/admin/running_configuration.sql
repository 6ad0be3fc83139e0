-- The configuration that each workflow runs with, as written. Called by outbox::workflow::running, for validate --against.
-- No parameters. Index: primary keys; workflows are few. A workflow that was registered before versions were kept has none.
select w.id, c.document
  from oncebox.workflow as w
  join oncebox.configuration as c on c.version = w.version
 where w.state <> 'removed'
 order by w.id;
