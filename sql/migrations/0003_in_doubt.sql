-- Events in doubt are found without passing through all that is due. Run by outbox::migrate in one transaction; `oncebox.` is
-- replaced by the configured schema. Read by sql/relay/end_in_doubt.sql and hold_in_doubt.sql.

create index retry_in_doubt on oncebox.retry (workflow, due) where state <> 'pending' and (in_doubt or state = 'active');

update oncebox.schema_version set version = 3;
