-- Where the counters of a cursor stand. Called by verify::counters. $1 cursor. Index: primary keys.
-- They move with the rows that they count. `kept_`: without what went with days that are past their retention, whose number is `gone_days`;
-- only to be believed where `are_days_known`, as in cursors.sql. On another timeline than before, commits may be missing that were counted.
with counted as (
    select c.id, c.appended, coalesce(d.suppressed, 0) as suppressed, coalesce(d.completed, 0) as completed,
           coalesce(d.cancelled, 0) as cancelled, coalesce(d.discarded, 0) as discarded
      from oncebox.cursor as c
      left join oncebox.delivery as d on d.cursor = c.id
     where c.id = $1
)
select n.appended - n.suppressed as stored, n.suppressed, n.completed + n.cancelled + n.discarded as ended,
       n.completed + n.cancelled + n.discarded - coalesce(g.completed + g.cancelled + g.discarded, 0) as kept_ended,
       n.cancelled - coalesce(g.cancelled, 0) as kept_cancelled, n.discarded - coalesce(g.discarded, 0) as kept_discarded,
       (select count(*) from oncebox.kept_day as k where k.is_gone) as gone_days,
       not exists (
           select 1 from oncebox.kept_day as k
            where not k.is_gone and k.day not in (select w.day from oncebox.whole_day as w)) as are_days_known,
       left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) as timeline
  from counted as n
  left join oncebox.gone as g on g.cursor = n.id;
