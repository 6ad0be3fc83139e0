-- Give back keys that were taken for events which are not stored after all. Called by outbox::submit. $1 workflows, $2 fingerprints,
-- $3 cursors, $4 offsets. Index: primary key.
delete from oncebox.seen as s
 using unnest($1, $2, $3, $4) as f (workflow, fingerprint, cursor, record_offset)
 where s.workflow = f.workflow and s.fingerprint = f.fingerprint and s.cursor = f.cursor and s.record_offset = f.record_offset;
