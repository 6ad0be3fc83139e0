package dev.oncebox.receiver;

/** What to do about a copy whose fence is lower than that of the copy that was processed. */
public enum Fences {
    IGNORE,
    /** Tell {@code STALE} apart. */
    REFUSE_LOWER
}
