-- Evidence: the rows at the end of a run, bodies as their SHA-256.
select 'cursor' as tbl, to_jsonb(t)::text as data from oncebox.cursor as t
union all
select 'delivery', to_jsonb(t)::text from oncebox.delivery as t
union all
select 'retry', to_jsonb(t)::text from oncebox.retry as t
union all
select 'outbox', ((to_jsonb(t) - 'body') || jsonb_build_object('digest', encode(sha256(t.body), 'hex')))::text
  from (select cursor, record_offset, event_index, generation, day, key, event_type, body from oncebox.outbox) as t
union all
select 'done', (to_jsonb(t) || jsonb_build_object('at_ms', (extract(epoch from t.at) * 1000)::bigint))::text
  from oncebox.done as t
union all
select 'dead_letter', (to_jsonb(t) - 'body')::text from oncebox.dead_letter as t
union all
select 'ledger', to_jsonb(t)::text from oncebox.ledger as t
union all
select 'gap', to_jsonb(t)::text from oncebox.gap as t
union all
select 'audit', to_jsonb(t)::text from oncebox.audit as t
union all
select 'workflow', to_jsonb(t)::text from oncebox.workflow as t;
