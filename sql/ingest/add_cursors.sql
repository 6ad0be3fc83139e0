-- Store where a workflow starts on a topic, for all its partitions at once. Called by outbox::cursor::add.
-- $1 ids, $2 workflow, $3 cluster, $4 topic, $5 topic id, $6 partitions, $7 start offsets (arrays run in step),
-- $8 whether they are read without the outbox.
-- Two processes may race; the first row of each cursor stands. A workflow that lives on under another id starts nothing.
-- Index: primary keys.
with added as (
    insert into oncebox.cursor
           (id, workflow, cluster, topic, topic_id, partition, start_offset, next_offset, claimed_to, direct, timeline)
    select start.id, $2, $3, $4, $5, start.partition, start.first_offset, start.first_offset, start.first_offset, $8,
           left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
      from unnest($1, $6, $7) as start (id, partition, first_offset)
     where not exists (select 1 from oncebox.workflow as w where w.id = $2 and w.renamed_to is not null)
     order by start.id
        on conflict do nothing
 returning id, start_offset
)
insert into oncebox.delivery (cursor, workflow, settled_to)
select id, $2, start_offset from added;
