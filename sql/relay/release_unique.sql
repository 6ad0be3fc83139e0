-- Let events go that waited for another of their uniqueness key to be settled. Called by outbox::unique::release. $1 workflow.
-- One that was being sent and is to be tried again is replaced now. The statement itself is the function of this name, in
-- migrations/0011_unique.sql. Index: retry_waits.
select oncebox.release_unique($1) as released;
