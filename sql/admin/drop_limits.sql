-- Before partitions are dropped: wait no longer than this for a lock. Called by outbox::partitions on its own connection.
set lock_timeout = '10s';
