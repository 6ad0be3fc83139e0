-- Which of these workflows live on under another id. Called by outbox::workflow::renamed. $1 workflow ids. Index: primary key.
select id, renamed_to from oncebox.workflow where id = any($1) and renamed_to is not null;
