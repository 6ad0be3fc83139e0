-- Tell other processes that a workflow has something to look at. Called by outbox::notify::tell, outside transactions.
-- $1 channel, $2 workflow.
select pg_notify($1, $2);
