-- Let everything that waits be claimed, whatever it waits for, so that it can be ended. Called by outbox::left::make_due.
-- $1 workflow. Index: retry_state. What is leased stays leased: its lease runs out.
update oncebox.retry
   set state = 'available', held = null, due = clock_timestamp()
 where workflow = $1 and (state = 'pending' or state <> 'active' and due > clock_timestamp());
