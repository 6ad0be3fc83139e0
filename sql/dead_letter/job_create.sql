-- Begin a replay of many dead letters. Called by dead_letter::job::create.
-- $1 id, $2 workflow or null, $3 reason or null, $4 from when they were written, $5 to, $6 whether with new keys,
-- $7 whether of at-most-once too, $8 how many a second or null, $9 who.
-- Asked again under one id, it is begun once. What is written after this statement is not among it. Index: primary key.
with asked as (
    select least(coalesce($5::timestamptz, clock_timestamp()), clock_timestamp()) as to_at
),
made as (
    insert into oncebox.replay (id, workflow, reason, from_at, to_at, new_key, force, per_second, who, total)
    select $1, $2, $3, $4, asked.to_at, $6, $7, $8, $9,
           (select count(*) from oncebox.dead_letter as d
             where ($2::text is null or d.workflow = $2) and ($3::text is null or d.reason = $3)
               and ($4::timestamptz is null or d.created_at >= $4) and d.created_at < asked.to_at)
      from asked
        on conflict (id) do nothing
 returning id, workflow, total
)
insert into oncebox.audit (who, action, workflow, detail)
select $9, 'replay begun', made.workflow, made.id::text || ': ' || made.total::text || ' dead letters' from made;
