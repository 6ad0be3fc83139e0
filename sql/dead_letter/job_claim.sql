-- Take a replay that is to go on and that nobody is at. Called by dead_letter::replayer. $1 process, $2 lease seconds, $3 those that this
-- process is at, $4 the workflows that it knows: letters of others it could not make into events.
-- Index: replay_running. What the process before did is known: the letters are gone, and it counted them as they went.
update oncebox.replay as j
   set owner = $1, lease_until = clock_timestamp() + make_interval(secs => $2)
 where j.id = (
       select k.id from oncebox.replay as k
        where k.state = 'running' and (k.owner is null or k.owner = $1 or k.lease_until < clock_timestamp())
          and not k.id::text = any($3) and (k.workflow is null or k.workflow = any($4))
        order by k.created_at
        limit 1
          for update skip locked)
returning j.id, j.workflow, j.reason, j.from_at, j.to_at, j.new_key, j.force, j.per_second, j.who, j.at_cursor, j.at_offset,
          j.at_index, j.at_generation;
