-- Whether a workflow has ever read anything from this cluster. Called by outbox::cursor::any.
-- $1 workflow, $2 cluster. Index: one_cursor_per_incarnation.
select exists (select 1 from oncebox.cursor where workflow = $1 and cluster = $2) as found;
