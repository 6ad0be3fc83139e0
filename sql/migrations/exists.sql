-- Whether there is a schema at all. Called by outbox::migrate.
select to_regclass('oncebox.schema_version') is not null as found;
