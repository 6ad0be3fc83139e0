-- The lanes of a cursor in which something is stored that is not over. Called by outbox::delivery::take where order is kept,
-- third statement, after what was in doubt was stored. $1 cursor. Index: retry_lane, dead_letter_blocks.
select distinct r.lane from oncebox.retry as r where r.cursor = $1 and r.lane is not null
 union
select b.lane from oncebox.dead_letter as b where b.cursor = $1 and b.blocks;
