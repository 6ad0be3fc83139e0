-- Whether a workflow has had too many dead letters lately. Called by outbox::park::are_too_many, after some were written.
-- $1 workflow, $2 seconds, $3 limit. Only what was refused or given up counts, and only since an operator last decided about
-- the workflow: a resume starts a new count. Bounded by the limit. Index: dead_letter_workflow.
select count(*) > $3 as too_many
  from (select 1
          from oncebox.dead_letter as d
         where d.workflow = $1
           and d.created_at > (select greatest(clock_timestamp() - make_interval(secs => $2), w.changed_at)
                                 from oncebox.workflow as w where w.id = $1)
           and d.reason in ('rejected', 'exhausted', 'expired')
         limit $3 + 1) as recent;
