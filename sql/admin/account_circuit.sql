-- Count the time for which a workflow's circuit was open as stopped: give-up times stand still meanwhile. Called by
-- outbox::workflow::account_circuit. $1 workflow, $2 seconds until now. Index: primary key.
-- What another process has counted already is not counted again, nor what counts by itself because the workflow was paused:
-- since `stopped_at`, or in the last stop.
update oncebox.workflow as w
   set stopped = w.stopped + greatest(interval '0', o.until - o.since - coalesce(upper(o.twice) - lower(o.twice), interval '0')),
       circuit_accounted_to = clock_timestamp()
  from (select s.id, s.since, s.until, s.last_stop * tstzrange(s.since, greatest(s.since, s.until)) as twice
          from (select id, last_stop,
                       greatest(clock_timestamp() - make_interval(secs => $2), circuit_accounted_to) as since,
                       least(clock_timestamp(), stopped_at) as until
                  from oncebox.workflow where id = $1 for update) as s) as o
 where w.id = o.id;
