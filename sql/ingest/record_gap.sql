-- Note offsets that were lost. Called by outbox::gap::record. $1 cursor, $2 from, $3 to, $4 reason, $5 action.
insert into oncebox.gap (cursor, from_offset, to_offset, reason, action) values ($1, $2, $3, $4, $5);
