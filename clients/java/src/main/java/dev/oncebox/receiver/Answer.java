package dev.oncebox.receiver;

/**
 * What to tell the sender.
 *
 * @param cause whatever went wrong, or was out of the ordinary, for the log; or null
 */
public record Answer(int status, String text, Exception cause) {
    public Answer(int status, String text) {
        this(status, text, null);
    }

    /** The value of {@code retry-after}, or null. */
    public String retryAfter() {
        return status == 503 ? "1" : null;
    }
}
