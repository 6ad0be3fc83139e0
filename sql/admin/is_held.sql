-- Whether a process holds something of a workflow. Called by outbox::left::is_held. $1 workflow.
-- Index: delivery_workflow, retry_state.
select exists (select 1 from oncebox.delivery as d
                where d.workflow = $1 and d.owner is not null and d.lease_until > clock_timestamp())
    or exists (select 1 from oncebox.retry as r
                where r.workflow = $1 and r.state = 'active' and r.lease_until > clock_timestamp()) as held;
