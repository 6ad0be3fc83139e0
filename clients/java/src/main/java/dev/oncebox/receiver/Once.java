package dev.oncebox.receiver;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Types;
import java.time.Duration;
import java.util.concurrent.Callable;
import javax.sql.DataSource;

/**
 * The key and the effect in one transaction of PostgreSQL. The key is inserted before anything else, and 2xx is answered
 * only when key and effect are committed, by this copy or an earlier one.
 */
public final class Once {
    /** The SQL of the table of keys. */
    public static final String TABLE = """
            create table if not exists processed_events (
                key text primary key,
                digest text not null,
                source text,
                fence bigint,
                received_at timestamptz not null default now());
            create index if not exists processed_events_age on processed_events (received_at);
            """;
    private static final String INSERT_KEY = """
            insert into processed_events (key, digest, source, fence) values (?, ?, ?, ?)
            on conflict (key) do nothing
            """;
    private static final String KNOWN = "select digest, fence from processed_events where key = ?";
    private static final String PRUNE = """
            delete from processed_events
             where key in (select key from processed_events where received_at < now() - make_interval(secs => ?)
                            order by received_at limit ?)
            """;
    // For this transaction alone: another one, begun after a rollback, does not have the key.
    private static final String MARK = "select set_config('lock_timeout', ?, true), set_config('oncebox.key', ?, true)";
    private static final String IS_MARKED = "select current_setting('oncebox.key', true) is not distinct from ?";
    // Postgres: lock_timeout ran out.
    private static final String LOCK_NOT_AVAILABLE = "55P03";

    /** What an event does, on the connection of the transaction that holds the key. */
    @FunctionalInterface
    public interface Effect {
        void apply(Connection connection) throws Exception;
    }

    /** Another transaction holds the key. */
    private static final class InProgress extends Exception {
        private static final long serialVersionUID = 1;

        InProgress(SQLException cause) {
            super("insert", cause);
        }
    }

    /** The commit failed, perhaps only its answer: the event is processed, or it is not. */
    private static final class OutcomeUnknown extends Exception {
        private static final long serialVersionUID = 1;

        OutcomeUnknown(SQLException cause) {
            super("commit", cause);
        }
    }

    @FunctionalInterface
    private interface Act<T> {
        T on(Connection connection) throws Exception;
    }

    private final DataSource source;
    private final Duration lockTimeout;

    public Once(DataSource source) {
        this(source, Duration.ofSeconds(2));
    }

    public Once(DataSource source, Duration lockTimeout) {
        this.source = source;
        this.lockTimeout = lockTimeout;
    }

    /**
     * Inserts the key in the caller's transaction, and commits nothing. A concurrent copy waits here for the transaction that
     * holds the key, at most for {@code lock_timeout}.
     */
    public static Applied apply(Connection connection, Event event) throws SQLException {
        if (connection.getAutoCommit()) {
            throw new IllegalStateException("no transaction: the key would be kept whatever becomes of the effect");
        }
        if (insert(connection, event)) {
            return Applied.FRESH;
        }
        try (PreparedStatement known = connection.prepareStatement(KNOWN)) {
            known.setString(1, event.key());
            ResultSet row = known.executeQuery();
            // Pruned since the insert: it was processed, with bytes that nobody knows any more.
            if (!row.next()) {
                return Applied.REPEAT;
            }
            if (!row.getString("digest").equals(event.digest())) {
                return Applied.CONFLICT;
            }
            long fence = row.getLong("fence");
            boolean isOlder = !row.wasNull() && event.fence() != null && event.fence() < fence;
            return isOlder ? Applied.STALE : Applied.REPEAT;
        }
    }

    /** Forgets the oldest keys, at most so many. Returns how many they were. Commit it when autocommit is off. */
    public static int prune(Connection connection, Duration olderThan, int atMost) throws SQLException {
        try (PreparedStatement prune = connection.prepareStatement(PRUNE)) {
            prune.setDouble(1, olderThan.toSeconds());
            prune.setInt(2, atMost);
            return prune.executeUpdate();
        }
    }

    /** The effect runs at most once per key that is committed, in the transaction of the key. */
    public Answer process(Event event, Effect effect) {
        return answer(event.key(), lockTimeout, connection -> {
            Applied applied = held(() -> apply(connection, event));
            if (applied == Applied.FRESH) {
                effect.apply(connection);
                commit(connection, event.key());
            }
            return answerOf(event, applied);
        });
    }

    /** The event is processed in each of these cases, by this copy or another, so that the sender need not come again. */
    private static Answer answerOf(Event event, Applied applied) {
        return switch (applied) {
            case FRESH -> new Answer(200, "processed\n");
            case REPEAT -> new Answer(200, "seen before\n");
            case CONFLICT -> new Answer(200, "seen before with other bytes; the first are kept\n", new OtherBody(event));
            case STALE -> new Answer(200, "seen before; a newer attempt was processed\n", new LowerFence(event));
        };
    }

    /** For {@code endpoint.lookup}. Asks the unique index, which also knows the keys of transactions under way. */
    public Answer lookup(String key) {
        return answer(key, Duration.ofMillis(100), connection -> {
            boolean isNew = held(() -> insert(connection, new Event(key, "", null, null, null, null)));
            return isNew ? new Answer(404, "not processed\n") : new Answer(200, "processed\n");
        });
    }

    private Answer answer(String key, Duration lockTimeout, Act<Answer> act) {
        try {
            return inTransaction(key, lockTimeout, act);
        } catch (InProgress error) {
            return new Answer(409, "this key is being processed\n", error);
        } catch (OutcomeUnknown error) {
            return new Answer(500, "perhaps processed\n", error);
        } catch (Exception error) {
            return new Answer(503, "not processed\n", error);
        }
    }

    /** What is not committed in the act is rolled back. */
    private <T> T inTransaction(String key, Duration lockTimeout, Act<T> act) throws Exception {
        try (Connection connection = source.getConnection()) {
            connection.setAutoCommit(false);
            try (PreparedStatement set = connection.prepareStatement(MARK)) {
                set.setString(1, String.valueOf(lockTimeout.toMillis()));
                set.setString(2, key);
                set.execute();
                return act.on(connection);
            } finally {
                rollback(connection);
            }
        }
    }

    /** After a commit this does nothing; a connection that cannot roll back is broken, which also rolls back. */
    private static void rollback(Connection connection) {
        try {
            connection.rollback();
            connection.setAutoCommit(true);
        } catch (SQLException ignored) {
            // What went wrong before says more.
        }
    }

    /** For inserting the key: an effect that waits too long is no copy under way. */
    private static <T> T held(Callable<T> insert) throws Exception {
        try {
            return insert.call();
        } catch (SQLException error) {
            throw LOCK_NOT_AVAILABLE.equals(error.getSQLState()) ? new InProgress(error) : error;
        }
    }

    private static void commit(Connection connection, String key) throws Exception {
        // Postgres answers the commit of a failed transaction without an error, and rolls back. In one this fails. One that
        // works may have been begun after the transaction of the key was rolled back.
        try (PreparedStatement check = connection.prepareStatement(IS_MARKED)) {
            check.setString(1, key);
            ResultSet row = check.executeQuery();
            if (!row.next() || !row.getBoolean(1)) {
                throw new IllegalStateException("the effect ended the transaction, and did not say so");
            }
        }
        try {
            connection.commit();
        } catch (SQLException error) {
            throw new OutcomeUnknown(error);
        }
    }

    private static boolean insert(Connection connection, Event event) throws SQLException {
        try (PreparedStatement insert = connection.prepareStatement(INSERT_KEY)) {
            insert.setString(1, event.key());
            insert.setString(2, event.digest());
            insert.setString(3, event.source());
            insert.setObject(4, event.fence(), Types.BIGINT);
            return insert.executeUpdate() == 1;
        }
    }
}
