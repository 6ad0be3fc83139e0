-- Return the claimed events that were never sent: they are the end of the range. Called by outbox::delivery::give_back.
-- $1 cursor, $2 delivery epoch, $3 first offset that was never sent. Index: primary key.
update oncebox.cursor
   set claimed_to = least(claimed_to, $3), delivery_epoch = 0
 where id = $1 and delivery_epoch = $2;
