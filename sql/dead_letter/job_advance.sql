-- A page of a replay is done. Called by dead_letter::replayer. $1 id, $2 process, $3 lease seconds, $4 skipped on this page, $5 why, or null,
-- $6 cursor, $7 offset, $8 index, $9 generation of its last letter, $10 whether there is no other.
-- Only for whoever holds the lease, so that what was skipped is counted once. Index: primary key.
update oncebox.replay as j
   set skipped = j.skipped + $4, problem = coalesce($5, j.problem),
       at_cursor = $6, at_offset = $7, at_index = $8, at_generation = $9,
       state = case when $10 then 'completed' else j.state end,
       finished_at = case when $10 then clock_timestamp() end,
       owner = case when $10 then null else j.owner end,
       lease_until = case when $10 then null else clock_timestamp() + make_interval(secs => $3) end
 where j.id = $1 and j.owner = $2 and j.state = 'running'
returning j.id;
