package dev.oncebox.receiver;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Signatures as Standard Webhooks has them: HMAC-SHA256 over {@code webhook-id.webhook-timestamp.body}. */
public final class Signature {
    public static final Duration TOLERANCE = Duration.ofMinutes(5);

    private Signature() {}

    /** The bytes of a secret: base64, behind {@code whsec_} or bare. */
    public static byte[] secretIn(String text) {
        String encoded = text.startsWith("whsec_") ? text.substring("whsec_".length()) : text;
        byte[] secret = Base64.getDecoder().decode(encoded);
        // Java takes base64 without its padding.
        if (secret.length == 0 || !Base64.getEncoder().encodeToString(secret).equals(encoded)) {
            throw new IllegalArgumentException("the secret is not base64");
        }
        return secret;
    }

    /**
     * One signature that was made with one of the secrets is enough; comparing takes the same time whatever it finds.
     *
     * @param body the bytes as they came
     */
    public static void verify(List<byte[]> secrets, Map<String, List<String>> headers, byte[] body, Instant now) {
        String key = one(headers, "webhook-id");
        String timestamp = one(headers, "webhook-timestamp");
        String[] given = one(headers, "webhook-signature").split(" ");
        if (!timestamp.matches("[0-9]{1,12}")) {
            throw new Unverified(Unverified.Reason.UNSIGNED);
        }
        if (Math.abs(now.getEpochSecond() - Long.parseLong(timestamp)) > TOLERANCE.toSeconds()) {
            throw new Unverified(Unverified.Reason.EXPIRED);
        }
        byte[] head = (key + "." + timestamp + ".").getBytes(StandardCharsets.US_ASCII);
        int matches = 0;
        for (byte[] secret : secrets) {
            String made = "v1," + Base64.getEncoder().encodeToString(hmac(secret, head, body));
            byte[] wanted = made.getBytes(StandardCharsets.US_ASCII);
            for (String signature : given) {
                matches += MessageDigest.isEqual(signature.getBytes(StandardCharsets.US_ASCII), wanted) ? 1 : 0;
            }
        }
        if (matches == 0) {
            throw new Unverified(Unverified.Reason.WRONG);
        }
    }

    private static byte[] hmac(byte[] secret, byte[] head, byte[] body) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(secret, "HmacSHA256"));
            mac.update(head);
            return mac.doFinal(body);
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException("every Java has HmacSHA256", error);
        }
    }

    private static String one(Map<String, List<String>> headers, String name) {
        List<String> values = Headers.values(headers, name);
        if (values.size() != 1 || !Headers.isPrintable(values.get(0))) {
            throw new Unverified(Unverified.Reason.UNSIGNED);
        }
        return values.get(0);
    }
}
