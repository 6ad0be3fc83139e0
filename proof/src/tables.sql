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
  from (select e.cursor, e.block * 64 + n as record_offset, e.event_index, e.generation, e.day,
               coalesce(r.state, case when tried.status is not null then 'completed' else 'nothing is known of it' end) as state,
               coalesce(r.sends, 1) as sends, coalesce(r.status, tried.status) as status, coalesce(r.at, tried.at) as at
          from oncebox.ended as e
         cross join generate_series(0, 63) as n
          left join lateral (
               select t.at % 1000 as status, to_timestamp(t.at / 1000000.0) as at
                 from (select e.tried as bits, e.tried_at as at
                        union all
                       select e.tried_before[i], e.tried_before[i + 1]
                         from generate_series(1, cardinality(e.tried_before), 2) as i) as t
                where (t.bits & (1::bigint << n)) <> 0
                limit 1) as tried on true
          left join oncebox.remark as r
            on r.cursor = e.cursor and r.record_offset = e.block * 64 + n and r.event_index = e.event_index
           and r.generation = e.generation and r.day = e.day
         where (e.bits & (1::bigint << n)) <> 0) as t
union all
select 'done', (to_jsonb(r) || jsonb_build_object('state', 'not ended'))::text
  from oncebox.remark as r
 where not exists (
       select 1 from oncebox.ended as e
        where e.cursor = r.cursor and e.block = r.record_offset / 64 and e.event_index = r.event_index
          and e.generation = r.generation and e.day = r.day and (e.bits & (1::bigint << (r.record_offset % 64)::int)) <> 0)
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
