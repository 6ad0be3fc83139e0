-- Which schema this is. Called by outbox::migrate.
select version, oldest_binary from oncebox.schema_version;
