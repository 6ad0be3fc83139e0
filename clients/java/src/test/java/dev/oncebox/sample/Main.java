package dev.oncebox.sample;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import dev.oncebox.receiver.Answer;
import dev.oncebox.receiver.Event;
import dev.oncebox.receiver.Once;
import dev.oncebox.receiver.Refused;
import dev.oncebox.receiver.Signature;
import dev.oncebox.receiver.Unverified;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Executors;
import org.postgresql.ds.PGSimpleDataSource;

/**
 * A receiver on the kit, the JDK's HTTP server and JDBC; it behaves as those of docs/receivers do.
 *
 * <p>Enters: POST /events, one copy of an event. Leaves: 2xx after the key and the effect were committed together. The
 * effect: an account's balance grows by the event's amount. GET /events/{key} says whether that has happened.
 *
 * <p>Environment: DATABASE_URL, LISTEN (127.0.0.1:8082), WEBHOOK_SECRET (one or more, separated by spaces; none: no check).
 * It leaves out a pool of connections: give {@code Once} the data source of one.
 */
public final class Main {
    private static final int LARGEST_BODY = 8 << 20;
    private static final int CONNECTIONS = 16;
    private static final long LARGEST_AMOUNT = (1L << 53) - 1;
    private static final String ACCOUNTS =
            "create table if not exists accounts (name text primary key, balance bigint not null)";
    private static final String CREDIT = """
            insert into accounts (name, balance) values (?, ?)
            on conflict (name) do update set balance = accounts.balance + excluded.balance
            """;
    private static final ObjectMapper JSON = new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

    private record Credit(String account, long amount) {}

    private final Once once;
    private final List<byte[]> secrets;

    private Main(Once once, List<byte[]> secrets) {
        this.once = once;
        this.secrets = secrets;
    }

    private Answer receive(Map<String, List<String>> headers, byte[] body) {
        Event event;
        try {
            if (!secrets.isEmpty()) {
                Signature.verify(secrets, headers, body, Instant.now());
            }
            event = Event.readSigned(headers, body);
        } catch (Unverified unverified) {
            return new Answer(401, "the signature is not good\n");
        } catch (Refused refused) {
            boolean isWithoutKey = refused.reason() == Refused.Reason.NO_KEY;
            return new Answer(refused.status(), isWithoutKey ? "no webhook-id\n" : refused.getMessage() + "\n");
        }
        Optional<Credit> credit = creditIn(body);
        if (credit.isEmpty()) {
            return new Answer(422, "no data with account and amount\n");
        }
        return once.process(event, connection -> apply(connection, credit.get()));
    }

    private static void apply(Connection connection, Credit credit) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(CREDIT)) {
            statement.setString(1, credit.account());
            statement.setLong(2, credit.amount());
            statement.executeUpdate();
        }
    }

    /** The account and the amount; nothing when the body is not such an event. */
    private static Optional<Credit> creditIn(byte[] body) {
        try {
            JsonNode data = JSON.readTree(body).path("data");
            JsonNode account = data.path("account");
            JsonNode amount = data.path("amount");
            boolean isCredit = account.isTextual() && amount.isIntegralNumber() && amount.canConvertToLong();
            // JSON can hold what UTF-8 and Postgres cannot: half a surrogate pair, the character 0.
            return isCredit && isStorable(account.textValue()) && Math.abs(amount.longValue()) <= LARGEST_AMOUNT
                    ? Optional.of(new Credit(account.textValue(), amount.longValue()))
                    : Optional.empty();
        } catch (IOException | StackOverflowError error) {
            return Optional.empty();
        }
    }

    private static boolean isStorable(String text) {
        return text.indexOf('\0') < 0 && StandardCharsets.UTF_8.newEncoder().canEncode(text);
    }

    private void handle(HttpExchange exchange) throws IOException {
        try (exchange) {
            Answer answer = route(exchange);
            if (answer.cause() != null && answer.status() != 409) {
                System.err.println(answer.status() + ": " + answer.cause());
            }
            if (answer.retryAfter() != null) {
                exchange.getResponseHeaders().set("retry-after", answer.retryAfter());
            }
            byte[] text = answer.text().getBytes(StandardCharsets.UTF_8);
            // Here 0 means a length that is not known yet, and -1 none.
            exchange.sendResponseHeaders(answer.status(), text.length == 0 ? -1 : text.length);
            exchange.getResponseBody().write(text);
        }
    }

    private Answer route(HttpExchange exchange) throws IOException {
        String path = exchange.getRequestURI().getPath();
        if (exchange.getRequestMethod().equals("POST") && path.equals("/events")) {
            byte[] body = exchange.getRequestBody().readNBytes(LARGEST_BODY + 1);
            return body.length > LARGEST_BODY ? new Answer(413, "") : receive(exchange.getRequestHeaders(), body);
        }
        if (exchange.getRequestMethod().equals("GET") && path.startsWith("/events/")) {
            return once.lookup(path.substring("/events/".length()));
        }
        return new Answer(404, "");
    }

    /** A URL as libpq has it, for JDBC: the user and the password go behind it. */
    public static PGSimpleDataSource sourceOf(String url) {
        URI from = URI.create(url);
        String[] user = Optional.ofNullable(from.getRawUserInfo()).orElse("").split(":", 2);
        StringBuilder query = new StringBuilder(Optional.ofNullable(from.getRawQuery()).orElse(""));
        for (int part = 0; part < user.length && !user[part].isEmpty(); part++) {
            query.append(part == 0 ? "&user=" : "&password=").append(user[part]);
        }
        PGSimpleDataSource source = new PGSimpleDataSource();
        int port = from.getPort() < 0 ? 5432 : from.getPort();
        source.setURL("jdbc:postgresql://" + from.getHost() + ":" + port + from.getRawPath() + "?" + query);
        return source;
    }

    private static List<byte[]> secretsIn(String text) {
        if (!text.isEmpty() && text.isBlank()) {
            throw new IllegalArgumentException("WEBHOOK_SECRET is blank: a secret, or nothing at all for no check");
        }
        return Arrays.stream(text.split("\\s+")).filter(one -> !one.isEmpty()).map(Signature::secretIn).toList();
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> environment = System.getenv();
        List<byte[]> secrets = secretsIn(environment.getOrDefault("WEBHOOK_SECRET", ""));
        PGSimpleDataSource source = sourceOf(environment.get("DATABASE_URL"));
        try (Connection connection = source.getConnection(); Statement statement = connection.createStatement()) {
            statement.execute(Once.TABLE + ACCOUNTS);
        }
        URI listen = URI.create("http://" + environment.getOrDefault("LISTEN", "127.0.0.1:8082"));
        // Or each answer waits for the acknowledgement of its head.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        HttpServer server = HttpServer.create(new InetSocketAddress(listen.getHost(), listen.getPort()), 128);
        server.setExecutor(Executors.newFixedThreadPool(CONNECTIONS));
        server.createContext("/", new Main(new Once(source), secrets)::handle);
        server.start();
        System.out.println("listening on " + listen.getHost() + ":" + server.getAddress().getPort());
    }
}
