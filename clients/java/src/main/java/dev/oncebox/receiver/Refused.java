package dev.oncebox.receiver;

/** A request whose key can be read in two ways, or whose headers are none, is refused, never guessed at. */
public final class Refused extends RuntimeException {
    private static final long serialVersionUID = 1;

    public enum Reason { NO_KEY, BAD_KEY, KEYS_DIFFER, BAD_NUMBER, DIGEST_DIFFERS }

    private final Reason reason;

    Refused(Reason reason) {
        super("the request is refused: " + reason);
        this.reason = reason;
    }

    public Reason reason() {
        return reason;
    }

    /** What to answer. Bytes that were damaged on the way may come whole the next time; the others will not change. */
    public int status() {
        return reason == Reason.DIGEST_DIFFERS ? 503 : 400;
    }
}
