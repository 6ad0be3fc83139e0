-- The settings that every guarantee hangs on. Called by outbox::migrate::check_server.
select current_setting('fsync') as fsync, current_setting('full_page_writes') as full_page_writes;
