-- One migration at a time. Run by outbox::migrate at the start of each migration's transaction.
select pg_advisory_xact_lock(hashtext('oncebox migrations'));
