package dev.oncebox.receiver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.oncebox.sample.Main;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.postgresql.ds.PGSimpleDataSource;

/** Keys and effects on a real PostgreSQL, each test in a schema of its own; skipped without DATABASE_URL. */
class OnceTest {
    private static final int COPIES = 16;

    private final String schema = "clients_java_" + UUID.randomUUID().toString().replace("-", "").substring(0, 12);
    private PGSimpleDataSource source;
    private Once once;

    @BeforeEach
    void open() throws SQLException {
        String url = System.getenv("DATABASE_URL");
        assumeTrue(url != null && !url.isEmpty(), "no DATABASE_URL");
        source = Main.sourceOf(url);
        source.setCurrentSchema(schema);
        once = new Once(source);
        execute("create schema " + schema + ";" + Once.TABLE + "create table effects (key text)");
    }

    @AfterEach
    void drop() throws SQLException {
        if (source != null) {
            execute("drop schema " + schema + " cascade");
        }
    }

    private void execute(String text) throws SQLException {
        try (Connection connection = source.getConnection(); Statement statement = connection.createStatement()) {
            statement.execute(text);
        }
    }

    private List<String> strings(String query) throws SQLException {
        List<String> found = new ArrayList<>();
        try (Connection connection = source.getConnection(); Statement statement = connection.createStatement()) {
            ResultSet rows = statement.executeQuery(query);
            while (rows.next()) {
                found.add(rows.getString(1));
            }
        }
        return found;
    }

    private List<String> effects() throws SQLException {
        return strings("select key from effects order by key");
    }

    private static Event event(String body, Long fence) {
        return new Event("one", Event.digestOf(body.getBytes(StandardCharsets.UTF_8)), null, null, fence, "credits/1/42");
    }

    private static final Event ONE = event("{}", null);

    private static void effect(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute("insert into effects values ('one')");
        }
    }

    private Answer process(Event event) {
        return once.process(event, OnceTest::effect);
    }

    private Connection begin() throws SQLException {
        Connection connection = source.getConnection();
        connection.setAutoCommit(false);
        return connection;
    }

    @Test
    void copiesAtTheSameTimeHaveOneEffect() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(COPIES);
        List<Callable<Answer>> copies = Collections.nCopies(COPIES, () -> process(ONE));
        List<Answer> answers = new ArrayList<>();
        for (Future<Answer> answer : threads.invokeAll(copies)) {
            answers.add(answer.get());
        }
        threads.shutdown();
        assertEquals(1, Collections.frequency(answers, new Answer(200, "processed\n")), answers::toString);
        assertEquals(COPIES - 1, Collections.frequency(answers, new Answer(200, "seen before\n")), answers::toString);
        assertEquals(List.of("one"), effects());
    }

    @Test
    void aRepeatAfterARollbackHasTheEffect() throws SQLException {
        Answer answer = once.process(ONE, connection -> {
            effect(connection);
            throw new IllegalStateException("no");
        });
        assertEquals(503, answer.status());
        assertEquals("1", answer.retryAfter());
        assertEquals(List.of(), effects());
        assertEquals(404, once.lookup("one").status());
        assertEquals("processed\n", process(ONE).text());
        assertEquals("seen before\n", process(ONE).text());
        assertEquals(List.of("one"), effects());
        assertEquals(200, once.lookup("one").status());
    }

    @Test
    void otherBytesUnderTheSameKeyAreToldApartAndHaveNoEffect() throws SQLException {
        assertEquals(new Answer(200, "processed\n"), process(ONE));
        Event other = event("[\"secret\"]", null);
        Answer answer = process(other);
        assertEquals(200, answer.status());
        assertEquals("seen before with other bytes; the first are kept\n", answer.text());
        assertInstanceOf(OtherBody.class, answer.cause());
        String told = "the key one came with another body, of digest " + other.digest() + "; the first is kept";
        assertEquals(told, answer.cause().getMessage());
        assertEquals(List.of("one"), effects());
    }

    @Test
    void aWordBeforeTheKeyKeepsTwoSendersApart() throws SQLException {
        for (String sender : List.of("orders:", "stock:")) {
            assertEquals("processed\n", process(ONE.withKey(sender + ONE.key())).text());
        }
        assertEquals(List.of("one", "one"), effects());
        assertEquals(200, once.lookup("orders:one").status());
        assertEquals(404, once.lookup("one").status());
    }

    @Test
    void theCallerCommits() throws SQLException {
        try (Connection connection = begin()) {
            assertEquals(Applied.FRESH, Once.apply(connection, ONE));
            assertEquals(Applied.REPEAT, Once.apply(connection, ONE));
            assertEquals(Applied.CONFLICT, Once.apply(connection, event("[]", null)));
            connection.rollback();
            assertEquals(Applied.FRESH, Once.apply(connection, ONE));
            connection.rollback();
        }
    }

    @Test
    void withoutATransactionNoKeyIsInserted() throws SQLException {
        try (Connection connection = source.getConnection()) {
            assertThrows(IllegalStateException.class, () -> Once.apply(connection, ONE));
        }
    }

    @Test
    void aLowerFenceIsToldApartAndAnsweredAsProcessed() throws SQLException {
        process(event("{}", 7L));
        try (Connection connection = begin()) {
            assertEquals(Applied.STALE, Once.apply(connection, event("{}", 6L)));
            assertEquals(Applied.REPEAT, Once.apply(connection, event("{}", 7L)));
            assertEquals(Applied.REPEAT, Once.apply(connection, event("{}", 8L)));
            assertEquals(Applied.REPEAT, Once.apply(connection, ONE));
            assertEquals(Applied.CONFLICT, Once.apply(connection, event("[]", 6L)));
            connection.rollback();
        }
        Answer answer = process(event("{}", 6L));
        assertEquals(200, answer.status());
        assertEquals("seen before; a newer attempt was processed\n", answer.text());
        assertInstanceOf(LowerFence.class, answer.cause());
        assertEquals("the key one came with fence 6, and was processed with a higher one", answer.cause().getMessage());
        assertEquals(List.of("one"), effects());
    }

    @Test
    void aKeyThatIsHeldIsBusy() throws SQLException {
        Once hasty = new Once(source, Duration.ofMillis(200));
        try (Connection holder = begin()) {
            Once.apply(holder, ONE);
            assertEquals(409, hasty.process(ONE, OnceTest::effect).status());
            assertEquals(409, once.lookup("one").status());
            holder.rollback();
        }
        assertEquals(404, once.lookup("one").status());
    }

    @Test
    void aCommitThatFailsIsInDoubt() throws SQLException {
        execute("alter table effects add constraint once unique (key) deferrable initially deferred");
        execute("insert into effects values ('one')");
        assertEquals(500, process(ONE).status());
        assertEquals(404, once.lookup("one").status());
    }

    @Test
    void anEffectThatHidesItsFailureIsNotProcessed() {
        Answer answer = once.process(ONE, connection -> {
            try (Statement statement = connection.createStatement()) {
                assertThrows(SQLException.class, () -> statement.execute("select 1 / 0"));
            }
        });
        assertEquals(503, answer.status());
        assertEquals(404, once.lookup("one").status());
    }

    @Test
    void anEffectThatRollsBackByItselfIsNotProcessed() throws SQLException {
        Once.Effect hides = connection -> {
            try (Statement statement = connection.createStatement()) {
                assertThrows(SQLException.class, () -> statement.execute("select 1 / 0"));
            }
            connection.rollback();
        };
        Once.Effect repeats = connection -> {
            effect(connection);
            connection.rollback();
            effect(connection);
        };
        for (Once.Effect rollsBack : List.of(hides, repeats)) {
            assertEquals(503, once.process(ONE, rollsBack).status());
            assertEquals(List.of(), effects());
            assertEquals(404, once.lookup("one").status());
        }
    }

    @Test
    void anEffectMayRollBackToASavepoint() throws SQLException {
        Answer answer = once.process(ONE, connection -> {
            Savepoint here = connection.setSavepoint();
            try (Statement statement = connection.createStatement()) {
                assertThrows(SQLException.class, () -> statement.execute("select 1 / 0"));
            }
            connection.rollback(here);
            effect(connection);
        });
        assertEquals(200, answer.status());
        assertEquals(List.of("one"), effects());
        assertEquals(200, once.lookup("one").status());
    }

    @Test
    void anEffectThatWaitsTooLongIsNotBusy() throws SQLException {
        Once hasty = new Once(source, Duration.ofMillis(200));
        try (Connection holder = begin(); Statement statement = holder.createStatement()) {
            statement.execute("lock table effects");
            assertEquals(503, hasty.process(ONE, OnceTest::effect).status());
            holder.rollback();
        }
        assertEquals(404, once.lookup("one").status());
    }

    @Test
    void aDatabaseThatIsAwayIsNotProcessed() {
        Once away = new Once(Main.sourceOf("postgresql://127.0.0.1:1/none"));
        assertEquals(503, away.process(ONE, OnceTest::effect).status());
    }

    @Test
    void oldKeysArePrunedAFewAtATime() throws SQLException {
        execute("""
                insert into processed_events
                select key, '', null, null, now() - make_interval(days => days)
                  from (values ('oldest', 40), ('older', 35), ('old', 31), ('young', 29)) as keys (key, days)
                """);
        try (Connection connection = source.getConnection()) {
            assertEquals(2, Once.prune(connection, Duration.ofDays(30), 2));
            assertEquals(List.of("old", "young"), strings("select key from processed_events order by key"));
            assertEquals(1, Once.prune(connection, Duration.ofDays(30), 1000));
        }
    }
}
