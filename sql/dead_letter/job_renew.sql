-- Keep a replay while one of its letters takes long. Called by dead_letter::replayer. $1 id, $2 process, $3 lease seconds.
-- Only for whoever holds it. Where it stands is left alone: an answer that is not waited for may come late. Index: primary key.
update oncebox.replay as j
   set lease_until = clock_timestamp() + make_interval(secs => $3)
 where j.id = $1 and j.owner = $2 and j.state = 'running'
returning j.id;
