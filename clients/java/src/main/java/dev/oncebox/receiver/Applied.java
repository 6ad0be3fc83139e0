package dev.oncebox.receiver;

/** What became of a key. Only after {@code FRESH} have the effect. */
public enum Applied {
    /** The key is new. */
    FRESH,
    /** The key is known. */
    REPEAT,
    /** The key is known with other bytes: keep the first. */
    CONFLICT,
    /** The key is known from a copy with a higher fence. */
    STALE
}
