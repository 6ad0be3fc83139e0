-- A table like that of the newest day, with a day's own settings, and a thousand rows to fill it with. Called by bench::insert.
do $$
declare
    day oid := (select tableoid from oncebox.outbox limit 1);
    kept record;
begin
    drop table if exists bench_rows, bench_sample;
    execute format('create table bench_rows (like %s including all)', day::regclass);
    execute format('alter table bench_rows set (%s)',
                   (select array_to_string(c.reloptions, ', ') from pg_class as c where c.oid = day));
    -- How much is remembered of each column is not copied.
    for kept in
        select a.attname, a.attstattarget from pg_attribute as a
         where a.attrelid = day and a.attnum > 0 and a.attstattarget >= 0
    loop
        execute format('alter table bench_rows alter column %I set statistics %s', kept.attname, kept.attstattarget);
    end loop;
    create table bench_sample as select * from oncebox.outbox limit 1000;
end
$$;
