-- Who reads and who delivers the cursors of some workflows. Called by bench::scale. $1 workflows. Unchanged between two looks means that
-- nobody took anything meanwhile: whoever takes a cursor or a delivery raises its epoch.
select c.owner::text as reader, count(*)::int8 as cursors, count(*) filter (where d.owner = c.owner)::int8 as at_home,
       md5(string_agg(concat_ws(' ', c.id, c.owner_epoch, d.epoch), ',' order by c.id)) as standing
  from oncebox.cursor as c
  join oncebox.delivery as d on d.cursor = c.id
 where c.workflow like $1
 group by c.owner
 order by c.owner
