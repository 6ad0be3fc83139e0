package dev.oncebox.receiver;

/** The key came with a lower fence than that of the copy that was processed. Answered 200. */
public final class LowerFence extends Exception {
    private static final long serialVersionUID = 1;

    LowerFence(Event event) {
        super("the key " + event.key() + " came with fence " + event.fence() + ", and was processed with a higher one");
    }
}
