-- Count the time for which a workflow's circuit was open as stopped: give-up times stand still meanwhile. Called by
-- outbox::workflow::account_circuit. $1 workflow, $2 seconds until now. Index: primary key.
-- What another process has counted already is not counted again; while the workflow is paused that counts by itself.
update oncebox.workflow
   set stopped = stopped + greatest(
           interval '0',
           clock_timestamp() - greatest(clock_timestamp() - make_interval(secs => $2), circuit_accounted_to)),
       circuit_accounted_to = clock_timestamp()
 where id = $1 and stopped_at is null;
