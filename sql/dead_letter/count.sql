-- How many dead letters a replay would have. Called by dead_letter::job::count.
-- $1 workflow or null, $2 reason or null, $3 and $4 from and to when they were written, or null. Index: dead_letter_workflow.
select count(*) as letters
  from oncebox.dead_letter as d
 where ($1::text is null or d.workflow = $1)
   and ($2::text is null or d.reason = $2)
   and ($3::timestamptz is null or d.created_at >= $3)
   and ($4::timestamptz is null or d.created_at < $4);
