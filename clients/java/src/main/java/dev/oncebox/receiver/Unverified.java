package dev.oncebox.receiver;

/** The request is not signed well. Answer 401: it is tried again. */
public final class Unverified extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** {@code UNSIGNED}: a header is missing or is none. */
    public enum Reason { UNSIGNED, EXPIRED, WRONG }

    private final Reason reason;

    Unverified(Reason reason) {
        super("the signature is not good: " + reason);
        this.reason = reason;
    }

    public Reason reason() {
        return reason;
    }
}
