-- Make day partitions ahead of time. Called by outbox::partitions::maintain. $1 days ahead.
select oncebox.make_partitions($1) as made;
