-- Note whether a delivery's new owner keeps order. Called by outbox::delivery::take, third statement, after what was in doubt was
-- stored. $1 cursor, $2 whether. Index: retry_lane, dead_letter_blocks.
-- One that does gets the lanes in which something is stored that is not over. One that does not lets go what waited for
-- its turn afterwards, some at a time: sql/relay/let_go.sql.
with noted as (
    update oncebox.delivery as d set ordered = $2 where d.cursor = $1 and d.ordered <> $2
)
select distinct r.lane from oncebox.retry as r where $2 and r.cursor = $1 and r.lane is not null
 union
select b.lane from oncebox.dead_letter as b where $2 and b.cursor = $1 and b.blocks;
