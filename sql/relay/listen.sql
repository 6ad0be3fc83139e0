-- Hear notices of this schema. Run by outbox::notify on a session of its own; the name is put in there.
listen oncebox_schema;
