package dev.oncebox.receiver;

/** The key came with another body than the first one, which is kept. Answered 200. */
public final class OtherBody extends Exception {
    private static final long serialVersionUID = 1;

    OtherBody(Event event) {
        super("the key " + event.key() + " came with another body, of digest " + event.digest() + "; the first is kept");
    }
}
