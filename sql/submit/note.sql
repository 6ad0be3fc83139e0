-- Note who gave events over HTTP, and how many. Called by outbox::submit, in the transaction that stores them.
-- $1 who, $2 workflows, $3 how many.
insert into oncebox.audit (who, action, workflow, detail)
select g.who, 'events submitted', g.workflow, g.events || case when g.events = 1 then ' event' else ' events' end
  from unnest($1, $2, $3) as g (who, workflow, events);
