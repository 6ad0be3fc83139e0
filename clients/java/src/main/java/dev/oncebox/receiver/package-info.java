/**
 * What an endpoint needs to apply each event of Oncebox once. In reading order: Signature, Event, Once.
 *
 * <p>Bytes and headers enter, {@code Signature.verify} says whether to believe them, {@code Event.read} takes the key out,
 * and {@code Once.process} has the effect in the transaction that also holds the key.
 */
package dev.oncebox.receiver;
