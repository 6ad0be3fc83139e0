-- Who changed what by hand, newest first. Called by operate::audit. $1 and $2 behind which it goes on: its time, and where its row lies
-- (null: from the newest); $3 limit.
-- Rows have no key, and some are of one moment: those are told apart by where they lie, which changes for none of them. Index: audit_at.
select a.at, a.ctid::text as lies_at, a.who, a.action, a.workflow, a.detail
  from oncebox.audit as a
 where $1::timestamptz is null or (a.at <= $1 and (a.at, a.ctid) < ($1, $2::text::tid))
 order by a.at desc, a.ctid desc
 limit $3;
