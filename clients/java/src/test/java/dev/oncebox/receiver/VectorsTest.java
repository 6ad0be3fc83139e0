package dev.oncebox.receiver;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.Test;

/** The vectors that all kits share, and what the README shows. Run in the kit's folder. */
class VectorsTest {
    private final JsonNode vectors = new ObjectMapper().readTree(Files.readString(Path.of("../vectors.json")));

    VectorsTest() throws IOException {}

    private static Map<String, List<String>> headersOf(JsonNode pairs) {
        Map<String, List<String>> headers = new LinkedHashMap<>();
        for (JsonNode pair : pairs) {
            headers.computeIfAbsent(pair.get(0).textValue(), name -> new ArrayList<>()).add(pair.get(1).textValue());
        }
        return headers;
    }

    private static byte[] bytes(JsonNode text) {
        return text.textValue().getBytes(StandardCharsets.UTF_8);
    }

    @Test
    void secrets() {
        for (JsonNode one : vectors.get("secrets")) {
            String text = one.get("text").textValue();
            if (one.has("refused")) {
                assertThrows(IllegalArgumentException.class, () -> Signature.secretIn(text), text);
            } else {
                assertArrayEquals(HexFormat.of().parseHex(one.get("hex").textValue()), Signature.secretIn(text), text);
            }
        }
    }

    @Test
    void signatures() {
        for (JsonNode one : vectors.get("signatures")) {
            List<byte[]> secrets = StreamSupport.stream(one.get("secrets").spliterator(), false)
                    .map(text -> Signature.secretIn(text.textValue())).toList();
            Instant now = Instant.ofEpochSecond(one.get("now").longValue());
            String result = "good";
            try {
                Signature.verify(secrets, headersOf(one.get("headers")), bytes(one.get("body")), now);
            } catch (Unverified error) {
                result = error.reason().name().toLowerCase();
            }
            assertEquals(one.get("result").textValue(), result, one.get("name").textValue());
        }
    }

    @Test
    void requests() {
        for (JsonNode one : vectors.get("requests")) {
            tryTo(Event::read, one, "read");
            tryTo(Event::readSigned, one, "readSigned");
        }
    }

    private static void tryTo(BiFunction<Map<String, List<String>>, byte[], Event> read, JsonNode one, String kind) {
        String why = one.get("name").textValue() + ": " + kind;
        JsonNode expected = one.get(kind);
        try {
            Event event = read.apply(headersOf(one.get("headers")), bytes(one.get("body")));
            assertTrue(expected.has("key"), why);
            JsonNode fields = one.get("fields");
            Integer attempt = fields.get("attempt").isNull() ? null : fields.get("attempt").intValue();
            Long fence = fields.get("fence").isNull() ? null : Long.valueOf(fields.get("fence").textValue());
            String key = expected.get("key").textValue();
            String digest = fields.get("digest").textValue();
            String source = fields.get("source").textValue();
            assertEquals(new Event(key, digest, fields.get("event").textValue(), attempt, fence, source), event, why);
        } catch (Refused error) {
            // noKey is NO_KEY here.
            String reason = expected.path("refused").asText().replaceAll("([A-Z])", "_$1").toUpperCase();
            assertEquals(reason, error.reason().name(), why);
        }
    }

    @Test
    void aKeyThatIsFarTooLongIsRefused() {
        for (String key : List.of("a".repeat(256), "a".repeat(1 << 20), "\\\\".repeat(1 << 20))) {
            Map<String, List<String>> headers = Map.of("idempotency-key", List.of("\"" + key + "\""));
            Refused refused = assertThrows(Refused.class, () -> Event.read(headers, new byte[0]));
            assertEquals(Refused.Reason.BAD_KEY, refused.reason());
        }
        String longest = "  \"" + "\\\"".repeat(255) + "\"  ";
        Event event = Event.read(Map.of("idempotency-key", List.of(longest)), new byte[0]);
        assertEquals("\"".repeat(255), event.key());
    }

    @Test
    void digests() {
        for (JsonNode one : vectors.get("digests")) {
            assertEquals(one.get("digest").textValue(), Event.digestOf(bytes(one.get("body"))));
        }
    }

    @Test
    void table() {
        assertEquals(vectors.get("table").textValue().replaceAll("\\s+", " "), Once.TABLE.strip().replaceAll("\\s+", " "));
    }

    @Test
    void codeInTheReadmeIsCodeThatRuns() throws IOException {
        String sample = Files.readString(Path.of("src/test/java/dev/oncebox/sample/Main.java"));
        String[] blocks = Files.readString(Path.of("README.md")).split("```java\n");
        assertTrue(blocks.length > 1);
        for (int block = 1; block < blocks.length; block++) {
            String shown = blocks[block].split("```")[0];
            assertTrue(sample.contains(shown), shown);
        }
    }
}
