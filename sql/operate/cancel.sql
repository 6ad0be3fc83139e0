-- Cancel an event. Called by operate::events. $1 cursor, $2 offset, $3 index, $4 generation, $5 who.
-- outcome: cancelled (now, or before); requested, when it was claimed: its owner drops it if it was not sent, otherwise a delivery completes it
-- and anything else cancels it; the state that it has ended in; unknown. The cursor's lock keeps the claimed range where it is, the
-- delivery's lock decides about the end. The statement itself is the function cancel_event, in migrations/0016_audit.sql.
select oncebox.cancel_event($1, $2, $3, $4, $5) as outcome;
