package dev.oncebox.receiver;

import java.math.BigInteger;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * What the headers say of an event: its key, and which attempt this is. What they do not say is null.
 *
 * @param digest of the body as it came, in the form of {@code content-digest}
 * @param source topic/partition/offset
 */
public record Event(String key, String digest, String event, Integer attempt, Long fence, String source) {
    private static final int LONGEST_KEY = 255;
    // A structured-field string (RFC 8941, 3.3.3): printable ASCII in quotes, a backslash before quote and backslash.
    private static final Pattern STRING = Pattern.compile(" *\"((?:[ !#-\\[\\]-~]|\\\\[\"\\\\])*)\" *");

    /** The same event under another key. */
    public Event withKey(String key) {
        return new Event(key, digest, event, attempt, fence, source);
    }

    /** The key from {@code webhook-id}, from {@code Idempotency-Key}, or from both when they say the same. */
    public static Event read(Map<String, List<String>> headers, byte[] body) {
        Optional<String> plain = atMostOne(headers, "webhook-id").map(Event::plainKey);
        Optional<String> quoted = atMostOne(headers, "idempotency-key").map(Event::quotedKey);
        if (plain.isPresent() && quoted.isPresent() && !plain.equals(quoted)) {
            throw new Refused(Refused.Reason.KEYS_DIFFER);
        }
        return of(plain.or(() -> quoted), headers, body);
    }

    /** After {@code verify}: the key from {@code webhook-id} alone, since the signature does not cover the other header. */
    public static Event readSigned(Map<String, List<String>> headers, byte[] body) {
        return of(atMostOne(headers, "webhook-id").map(Event::plainKey), headers, body);
    }

    public static String digestOf(byte[] body) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(body);
            return "sha-256=:" + Base64.getEncoder().encodeToString(digest) + ":";
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException("every Java has SHA-256", error);
        }
    }

    private static Event of(Optional<String> key, Map<String, List<String>> headers, byte[] body) {
        if (key.isEmpty()) {
            throw new Refused(Refused.Reason.NO_KEY);
        }
        Long attempt = number(headers, "oncebox-attempt", Integer.MAX_VALUE);
        Long fence = number(headers, "oncebox-fence", Long.MAX_VALUE);
        if (attempt != null && attempt == 0) {
            throw new Refused(Refused.Reason.BAD_NUMBER);
        }
        String digest = digestOf(body);
        for (String part : String.join(",", Headers.values(headers, "content-digest")).split(",")) {
            if (part.strip().startsWith("sha-256=") && !part.strip().equals(digest)) {
                throw new Refused(Refused.Reason.DIGEST_DIFFERS);
            }
        }
        String event = text(headers, "oncebox-event");
        String source = text(headers, "oncebox-source");
        return new Event(key.get(), digest, event, attempt == null ? null : attempt.intValue(), fence, source);
    }

    private static Optional<String> atMostOne(Map<String, List<String>> headers, String name) {
        List<String> values = Headers.values(headers, name);
        if (values.size() > 1) {
            throw new Refused(Refused.Reason.BAD_KEY);
        }
        return values.stream().findFirst();
    }

    private static String plainKey(String text) {
        if (!Headers.isPrintable(text) || text.length() > LONGEST_KEY) {
            throw new Refused(Refused.Reason.BAD_KEY);
        }
        return text;
    }

    private static String quotedKey(String text) {
        // Java's regular expressions take stack for each character. As long as a key can be when all of it is escaped.
        boolean isTooLong = text.strip().length() > 2 * LONGEST_KEY + 2;
        Matcher string = STRING.matcher(text);
        if (isTooLong || !string.matches()) {
            throw new Refused(Refused.Reason.BAD_KEY);
        }
        return plainKey(string.group(1).replaceAll("\\\\(.)", "$1"));
    }

    private static Long number(Map<String, List<String>> headers, String name, long largest) {
        List<String> values = Headers.values(headers, name);
        if (values.isEmpty()) {
            return null;
        }
        String text = values.get(0);
        boolean isNumber = values.size() == 1 && text.matches("[0-9]{1,19}");
        if (!isNumber || new BigInteger(text).compareTo(BigInteger.valueOf(largest)) > 0) {
            throw new Refused(Refused.Reason.BAD_NUMBER);
        }
        return Long.valueOf(text);
    }

    private static String text(Map<String, List<String>> headers, String name) {
        List<String> values = Headers.values(headers, name);
        return values.isEmpty() ? null : String.join(", ", values);
    }
}
