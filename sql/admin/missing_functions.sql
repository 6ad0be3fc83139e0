-- Functions that statements call, and those that they call in turn, which are not there. Called by outbox::migrate::missing_functions, at
-- the start. No parameters. Index: none of ours; a look into the catalogue for each. A test in src/outbox/migrate.rs holds the list.
select f.signature
  from (values
        ('oncebox.append_alike(uuid, bigint[], bigint[], bigint[], bigint[], bigint[], integer[], bigint[], text[], text[], '
         'bigint[], bigint[], text[], bigint[], bytea, integer[], integer[], text, text, bigint)'),
        ('oncebox.append_events(uuid, bigint[], bigint[], bigint[], bigint[], bigint[], integer[], bigint[], text[], text[], '
         'bigint[], bigint[], integer[], text[], text[], text[], text[], bigint[], bigint[], bytea[], bigint[], '
         'text, text, bigint, bytea[], double precision[])'),
        ('oncebox.cancel_event(bigint, bigint, integer, integer, text)'),
        ('oncebox.cancel_waiting(bigint, bigint, integer, integer)'),
        ('oncebox.claim_retries(text, uuid, double precision, bigint, boolean, bigint[])'),
        ('oncebox.end_cancelled(text)'),
        ('oncebox.end_in_doubt(text, bigint, boolean)'),
        ('oncebox.event_id(bigint, bigint, integer, integer)'),
        ('oncebox.finish(bigint[], bigint[], integer[], integer[], date[], text, integer[], integer[])'),
        ('oncebox.has(bigint, bigint)'),
        ('oncebox.is_one_time(bigint, bigint)'),
        ('oncebox.is_withdrawn(bigint, bigint, integer, integer)'),
        ('oncebox.make_partitions(integer)'),
        ('oncebox.note_gone(date)'),
        ('oncebox.open_lanes(bigint[], bigint[], bigint[], uuid)'),
        ('oncebox.release_unique(text)'),
        ('oncebox.rival_of(bigint, bigint, integer, integer)'),
        ('oncebox.rival_of_new(bigint, text, bytea[])'),
        ('oncebox.senders(text, double precision)'),
        ('oncebox.settle_held(bigint[], bigint[], integer[], integer[], date[], bigint[], integer, uuid, bigint[], bigint[], bigint[], '
         'bigint[])'),
        ('oncebox.settle_retried(bigint[], bigint[], integer[], integer[], date[], integer[], integer[], integer[], bigint[], '
         'bigint[])'),
        ('oncebox.state_of(bigint, bigint, integer, integer, text)'),
        ('oncebox.take_unique(uuid, bigint[], bigint[], bigint[], text[], bytea[], bigint[], bigint[], integer[], text[], text[], '
         'text[], double precision[], double precision[], boolean[])'),
        ('oncebox.today()'),
        ('oncebox.turn_of(text, text, integer, bigint)')
       ) as f (signature)
 where to_regprocedure(f.signature) is null
 order by f.signature;
