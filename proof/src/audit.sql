-- Evidence: every change of every row of a run, with its time and transaction. Only ever in a test's database.
create table oncebox.chaos_audit (
    seq bigserial primary key,
    at timestamptz not null default clock_timestamp(),
    xid text not null default pg_current_xact_id()::text,
    tbl text not null,
    op text not null,
    old json,
    new json
);

-- A row without its bytes, with its times as milliseconds beside them. Made when the evidence is written down: in the triggers it
-- slows down what is being watched.
create function oncebox.chaos_row(data jsonb) returns jsonb language sql immutable as $$
    select (data - 'body' - 'answer') || coalesce(
        (select jsonb_object_agg(key || '_ms', (extract(epoch from value::timestamptz) * 1000)::bigint)
           from jsonb_each_text(data)
          where key in ('at', 'lease_until', 'due') and value is not null), '{}')
$$;

create function oncebox.chaos_note() returns trigger language plpgsql as $$
begin
    insert into oncebox.chaos_audit (tbl, op, old, new)
    values (tg_argv[0], tg_op, case when tg_op <> 'INSERT' then row_to_json(old) end,
            case when tg_op <> 'DELETE' then row_to_json(new) end);
    return null;
end
$$;

-- The same for new events, of which there are most: their bytes are left out at once.
create function oncebox.chaos_note_event() returns trigger language plpgsql as $$
begin
    insert into oncebox.chaos_audit (tbl, op, new)
    select 'outbox', 'INSERT', row_to_json(e)
      from (select new.cursor, new.record_offset, new.event_index, new.generation, new.day, new.delayed, new.key, new.event_type,
                   new.content_type, new.traceparent, new.source_at, new.created_at, new.config_version, new.lane) as e;
    return null;
end
$$;

-- Ends are noted one by one. Those that are told in a row of their own are noted by that row.
create function oncebox.chaos_note_ends() returns trigger language plpgsql as $$
declare
    cleared bigint := case tg_op when 'INSERT' then 0 when 'UPDATE' then old.bits & ~new.bits else old.bits end;
    tried bigint;
begin
    insert into oncebox.chaos_audit (tbl, op, old)
    select 'done', 'DELETE', json_build_object(
               'cursor', old.cursor, 'record_offset', old.block * 64 + n, 'event_index', old.event_index,
               'generation', old.generation, 'day', old.day)
      from generate_series(0, 63) as n
     where (cleared & (1::bigint << n)) <> 0;
    -- What is taken together with the last ones is new in them; what is not, is all new.
    if tg_op <> 'DELETE' then
        tried := case when tg_op = 'UPDATE' and new.tried_at = old.tried_at then new.tried & ~old.tried else new.tried end;
        insert into oncebox.chaos_audit (tbl, op, new)
        select 'done', 'INSERT', json_build_object(
                   'cursor', new.cursor, 'record_offset', new.block * 64 + n, 'event_index', new.event_index,
                   'generation', new.generation, 'day', new.day, 'state', 'completed', 'sends', 1,
                   'status', new.tried_at % 1000, 'at', to_timestamp(new.tried_at / 1000000.0))
          from generate_series(0, 63) as n
         where (tried & (1::bigint << n)) <> 0;
    end if;
    return null;
end
$$;

create trigger chaos_note after insert or update or delete on oncebox.cursor
    for each row execute function oncebox.chaos_note('cursor');
create trigger chaos_note after insert or update or delete on oncebox.delivery
    for each row execute function oncebox.chaos_note('delivery');
create trigger chaos_note after insert or update or delete on oncebox.retry
    for each row execute function oncebox.chaos_note('retry');
create trigger chaos_note_event after insert on oncebox.outbox
    for each row execute function oncebox.chaos_note_event();
create trigger chaos_note after update or delete on oncebox.outbox
    for each row execute function oncebox.chaos_note('outbox');
create trigger chaos_note_ends after insert or update or delete on oncebox.ended
    for each row execute function oncebox.chaos_note_ends();
create trigger chaos_note after insert or update or delete on oncebox.remark
    for each row execute function oncebox.chaos_note('done');
create trigger chaos_note after insert or update or delete on oncebox.dead_letter
    for each row execute function oncebox.chaos_note('dead_letter');
create trigger chaos_note after insert or update or delete on oncebox.workflow
    for each row execute function oncebox.chaos_note('workflow');
