-- End what was to be cancelled and is not being sent any more, and let events go that waited for another of their uniqueness key to be
-- settled. Called by outbox::cancel::sweep, before retries are leased. $1 workflow.
-- One that was being sent, is to be tried again, and has another waiting for it, is replaced now. Answers what was to be cancelled and has no
-- row of its own: whoever has such an event in memory, and has not sent it, drops it. The statements themselves are the functions
-- release_unique and end_cancelled, in migrations/0011_unique.sql. Index: retry_waits, cancel_workflow.
select x.cursor, x.record_offset, x.event_index, x.generation
  from (select oncebox.release_unique($1) as released) as first
 cross join lateral oncebox.end_cancelled($1) as x
 where first.released >= 0;
