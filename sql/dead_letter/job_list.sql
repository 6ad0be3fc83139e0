-- Replays, newest first. Called by dead_letter::job::list. $1 one of them or null, $2 limit; behind which one the list goes on:
-- $3 when it was begun or null, $4 its id. Index: primary key, replay_age.
select j.id, j.workflow, j.reason, j.from_at, j.to_at, j.new_key, j.force, j.per_second, j.state, j.who, j.created_at,
       j.finished_at, j.total, j.replayed, j.skipped, j.problem
  from oncebox.replay as j
 where ($1::uuid is null or j.id = $1) and ($3::timestamptz is null or (j.created_at, j.id) < ($3, $4))
 order by j.created_at desc, j.id desc
 limit $2;
