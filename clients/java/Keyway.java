package io.keyway;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.ConnectException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.NANOSECONDS;

/**
 * Locks of a Keyway cluster, by the lock service of its routers (router --locks).
 *
 * <pre>{@code
 * Keyway keyway = new Keyway("http://127.0.0.1:8090");
 * try (Keyway.Lock lock = keyway.lock(Duration.ofSeconds(5), "order-42")) {
 *     write(lock.token()); // UPDATE orders SET state = 'shipped', token = ? WHERE id = 42 AND token < ?
 * }
 * }</pre>
 *
 * It needs Java 17 and nothing else. docs/clients.md is its guide. Threads may share a client. The methods that change
 * a setting return a client with that setting and the same connections.
 */
@SuppressWarnings("serial")
public final class Keyway {
    // Times are in nanoseconds.
    private static final long MILLISECOND = 1_000_000;
    private static final long SECOND = 1000 * MILLISECOND;
    private static final long FOREVER = Long.MAX_VALUE / 4;
    private static final long ROUND = 30 * SECOND; // longest wait of one request; a longer wait takes several
    private static final double WARN = 0.8; // part of a lease after which Lock.lost completes
    private static final double STOP = 0.95; // part of a lease after which work must have ended
    private static final int MAX_ANSWER = 1 << 20; // bytes
    private static final long START = System.nanoTime();
    // of their own, since a program may fill the common pool with work under its locks
    private static final ExecutorService THREADS = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task, "keyway");
        thread.setDaemon(true);
        return thread;
    });

    private final List<String> urls;
    private final AtomicInteger at; // the router to ask, modulo their number
    private final HttpClient http;
    private final String token;
    private final String label;
    private final long timeout;
    private final String ttl; // null for the session TTL
    private final boolean read;

    /** Returns a client of the lock service at the URLs of routers, such as http://127.0.0.1:8090. */
    public Keyway(String... urls) {
        this(Stream.of(urls).map(url -> url.replaceFirst("/+$", "")).toList(),
            new AtomicInteger(ThreadLocalRandom.current().nextInt(urls.length)),
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(2)).build(),
            null, null, 10 * SECOND, null, false);
        this.urls.forEach(url -> HttpRequest.newBuilder(URI.create(url))); // refuses other URLs than of HTTP
    }

    private Keyway(List<String> urls, AtomicInteger at, HttpClient http,
            String token, String label, long timeout, String ttl, boolean read) {
        this.urls = urls;
        this.at = at;
        this.http = http;
        this.token = token;
        this.label = label;
        this.timeout = timeout;
        this.ttl = ttl;
        this.read = read;
    }

    /** Returns a client with the token of --locks-token. */
    public Keyway withToken(String token) {
        return new Keyway(urls, at, http, token, label, timeout, ttl, read);
    }

    /** Returns a client whose locks have a name for people, of up to 64 bytes. */
    public Keyway withLabel(String label) {
        return new Keyway(urls, at, http, token, label, timeout, ttl, read);
    }

    /** Returns a client that repeats an unanswered call for this time. The default is 10 s. */
    public Keyway withTimeout(Duration timeout) {
        return new Keyway(urls, at, http, token, label, nanos(timeout), ttl, read);
    }

    /** Returns a client whose locks last for this time if its process dies. The default is the session TTL. */
    public Keyway withTtl(Duration ttl) {
        return new Keyway(urls, at, http, token, label, timeout, ttl.toMillis() + "ms", read);
    }

    /** Returns a client whose locks share their keys with other readers. */
    public Keyway reading() {
        return new Keyway(urls, at, http, token, label, timeout, ttl, true);
    }

    /** Locks a key, or all of several keys. It waits without end, and fails as the other lock does. */
    public Lock lock(String... keys) throws InterruptedException {
        return new Lock(FOREVER, keys);
    }

    /**
     * Locks a key, or all of several keys. It waits for other holders for up to this time, zero for not at all.
     *
     * @throws LockedException if others hold a key at the end of the wait
     * @throws UnavailableException if no router has answered for the timeout after that
     * @throws KeywayException if the service refuses the request
     * @throws InterruptedException if the thread is interrupted
     */
    public Lock lock(Duration wait, String... keys) throws InterruptedException {
        return new Lock(nanos(wait), keys);
    }

    /** Keys that are held until close, and renewed in the background. Threads may share it. */
    public final class Lock implements AutoCloseable {
        private final List<String> keys;
        private final CompletableFuture<String> lost = new CompletableFuture<>();
        private String id = UUID.randomUUID().toString();
        private boolean unsure; // a router may have locked a key
        private volatile Answer held; // the latest one
        private volatile boolean closed;
        private volatile boolean ended; // as its owner says
        private CompletableFuture<Boolean> timer = new CompletableFuture<>(); // of tick
        private boolean renewing;

        private Lock(long wait, String... keys) throws InterruptedException {
            this.keys = Stream.of(keys).distinct().toList();
            for (String key : keys) {
                if (!UTF_8.newEncoder().canEncode(key)) {
                    throw new IllegalArgumentException("keyway: half of a surrogate pair in key " + key);
                }
            }
            try {
                acquire(wait);
            } catch (Throwable failure) {
                if (unsure) {
                    THREADS.execute(this::giveBack);
                }
                throw failure;
            }
        }

        private void acquire(long wait) throws InterruptedException {
            long until = now() + wait;
            while (true) {
                long limit = timeout + (wait == FOREVER ? now() + ROUND : until);
                Answer answer = ask("POST", until, limit);
                if (answer.done() && answer.sent.since() > answer.lease / 10) { // it does not say when its lease began
                    answer = ask("PUT", 0, limit);
                }
                if (answer.done()) {
                    held = answer;
                    tick();
                    return;
                }
                if (now() >= (answer.status == 423 ? until : answer.status == 410 ? limit : 0)) {
                    throw refusal(answer);
                }
                if (answer.status == 410) {
                    id = UUID.randomUUID().toString(); // a lock that has ended needs a new id
                }
                NANOSECONDS.sleep(jitter(SECOND / 20));
            }
        }

        /** Repeats a request until it is answered, or limit has passed. */
        private Answer ask(String method, long until, long limit) throws InterruptedException {
            Answer failure = null; // the latest, but an answer says more than none
            for (long pause = SECOND / 20;; pause = Math.min(2 * pause, SECOND)) {
                long wait = Math.max(0, Math.min(until - now(), ROUND));
                long patience = Math.max(Math.min((limit - now() - wait) / 2, timeout), SECOND / 10);
                boolean before = unsure;
                unsure = true;
                int turn = at.get();
                Answer answer = await(send(turn, method, wait, patience));
                if (!answer.again()) {
                    unsure = before || answer.done();
                    return answer;
                }
                at.compareAndSet(turn, turn + 1);
                failure = failure == null || failure.status == 0 || answer.status > 0 ? answer : failure;
                long rest = limit - now();
                if (rest <= 0) {
                    throw new UnavailableException(this + ": no answer to " + method + " in time, at last from "
                        + failure.text + ". Ask again later, or check the routers and their --locks", failure);
                }
                long next = Math.max(jitter(pause), answer.after);
                NANOSECONDS.sleep(Math.max(Math.min(next, rest / 4), SECOND / 100));
            }
        }

        /** Makes a request. Its answer says if there is none within wait and patience. */
        private CompletableFuture<Answer> send(int turn, String method, long wait, long patience) {
            List<String> query = new ArrayList<>();
            keys.forEach(key -> add(query, "key", key));
            add(query, "ttl", method.equals("DELETE") ? null : ttl);
            if (method.equals("POST")) {
                add(query, "wait", wait / MILLISECOND + "ms");
                add(query, "label", label);
                add(query, "mode", read ? "read" : "write");
            }
            String url = urls.get(Math.floorMod(turn, urls.size()));
            HttpRequest.Builder request = HttpRequest
                .newBuilder(URI.create(url + "/v1/locks?" + String.join("&", query)))
                .method(method, HttpRequest.BodyPublishers.noBody()).header("Idempotency-Key", id);
            if (token != null) {
                request.header("Authorization", "Bearer " + token);
            }
            Moment sent = Moment.now();
            ByteArrayOutputStream body = new ByteArrayOutputStream();
            CompletableFuture<Answer> result = new CompletableFuture<Answer>()
                .completeOnTimeout(Answer.none(url + ": silence"), wait + patience, NANOSECONDS);
            Future<?> call = THREADS.submit(() -> { // sendAsync would need a thread of the common pool
                try {
                    HttpResponse<Void> response = http.send(request.build(),
                        HttpResponse.BodyHandlers.ofByteArrayConsumer(part ->
                            part.filter(bytes -> body.size() < MAX_ANSWER).ifPresent(body::writeBytes)));
                    result.complete(Answer.of(response, body.toString(UTF_8), url, sent, keys));
                } catch (IOException | InterruptedException | RuntimeException e) {
                    result.complete(Answer.none(url + ": " + (e instanceof ConnectException
                        ? "no connection: it is refused, or the name is unknown" : e)));
                }
            });
            result.whenComplete((answer, cancelled) -> call.cancel(true)); // ends its connection, if it goes on
            return result;
        }

        /** Renews the keys when that is due. It sees soon if only the wall clock runs on. */
        private synchronized void tick() {
            if (closed || lost.isDone()) {
                return;
            }
            if (rest(WARN) <= 0) {
                lose("it was not renewed in time");
                return;
            }
            timer = after(Math.min(rest(WARN), held.lease / 20), this::tick);
            if (rest(1.0 / 3) <= 0 && !renewing) {
                renewing = true;
                int turn = at.get();
                send(turn, "PUT", 0, Math.min(held.lease / 5, timeout)).thenAccept(answer -> renewed(turn, answer));
            }
        }

        private synchronized void renewed(int turn, Answer answer) {
            renewing = false;
            if (answer.status == 410) {
                ended = true;
                lose("it has ended");
            } else if (!answer.done()) {
                at.compareAndSet(turn, turn + 1);
            } else if (!lost.isDone()) {
                held = answer;
            }
        }

        private synchronized void lose(String reason) {
            if (!closed) {
                lost.complete(reason);
            }
        }

        /** Returns the fencing token, of several keys that of the first one. */
        public long token() {
            return held.tokens.get(keys.get(0));
        }

        /** Returns the fencing token of each key. */
        public Map<String, Long> tokens() {
            return held.tokens;
        }

        /**
         * Completes, with the reason, when the keys are known not to be held, or when 0.8 of their lease has passed
         * without a renewal: end the work within left.
         */
        public CompletionStage<String> lost() {
            return lost.thenApplyAsync(reason -> reason, THREADS);
        }

        /** Returns for how much longer the keys are held, zero if they are not. */
        public Duration left() {
            return Duration.ofNanos(closed || ended ? 0 : Math.max(rest(STOP), 0));
        }

        /** Throws LostException unless the keys are held. */
        public void check() {
            if (lost.isDone() || left().isZero()) {
                throw new LostException(this, Answer.none(""));
            }
        }

        /**
         * Unlocks the keys. Another call does nothing. An interrupt does not end it.
         *
         * @throws LostException if the keys were not, or not certainly, held until now
         * @throws UnavailableException if no router has answered: the keys are free at the end of their lease
         */
        @Override
        public void close() {
            long patience = Math.min(Math.max(left().toNanos(), SECOND), timeout);
            synchronized (this) {
                if (closed) {
                    return;
                }
                closed = true;
                timer.complete(false);
            }
            release(patience);
        }

        private void release(long patience) {
            long limit = now() + patience;
            boolean interrupted = false;
            try {
                while (true) {
                    try {
                        Answer answer = ask("DELETE", 0, limit);
                        if (!answer.done()) {
                            throw refusal(answer);
                        }
                        return;
                    } catch (InterruptedException e) {
                        interrupted = true;
                    }
                }
            } finally {
                if (interrupted) {
                    Thread.currentThread().interrupt();
                }
            }
        }

        private void giveBack() {
            try {
                release(timeout);
            } catch (KeywayException e) {
                // It was not locked, or ends by itself.
            }
        }

        private long rest(double part) {
            return (long) (held.lease * part) - held.sent.since();
        }

        private KeywayException refusal(Answer answer) {
            if (answer.status == 410) {
                return new LostException(this, answer);
            }
            if (answer.status != 423) {
                return new KeywayException(this + ": " + answer.text, answer);
            }
            String by = "held by a request";
            if ("lock".equals(answer.body.get("kind"))) {
                Object holder = "".equals(answer.body.get("holder")) ? "another caller" : answer.body.get("holder");
                by = "locked for another " + answer.lease / (SECOND / 10) / 10.0 + "s by " + holder;
            }
            return new LockedException(
                answer.body.get("key") + " is " + by + ": ask again later, or wait longer", answer);
        }

        @Override
        public String toString() {
            return String.join(" and ", keys);
        }
    }

    /** The lock service refuses a request. */
    public static class KeywayException extends RuntimeException {
        private final int status;
        private final transient Map<String, Object> problem;

        private KeywayException(String text, Answer answer) {
            super("keyway: " + text);
            status = answer.status;
            problem = answer.body;
        }

        /** Returns the status of the answer, 0 if there is none. */
        public int status() {
            return status;
        }

        /** Returns the problem (RFC 9457) in the answer. It may be empty. */
        public Map<String, Object> problem() {
            return problem;
        }
    }

    /** Others hold a key. The problem has the holder: key, kind, holder, ttl_ms and waiting. */
    public static final class LockedException extends KeywayException {
        private LockedException(String text, Answer answer) {
            super(text, answer);
        }
    }

    /** A key is not held any more, or not certainly, and others may hold it: stop, and do not write. */
    public static final class LostException extends KeywayException {
        private LostException(Lock lock, Answer answer) {
            super(lock + ": the lock has ended, and others may hold it: stop, and write only with a new lock", answer);
        }
    }

    /** No router answered in time. A lock that it may have left ends by itself, at the end of its ttl. */
    public static final class UnavailableException extends KeywayException {
        private UnavailableException(String text, Answer answer) {
            super(text, answer);
        }
    }

    /** A router's answer. Its status is 0 if there is none. */
    private record Answer(int status, Map<String, Object> body, String text, long after,
            Moment sent, long lease, Map<String, Long> tokens) {

        static Answer none(String text) {
            return new Answer(0, Map.of(), text, 0, null, 0, Map.of());
        }

        static Answer of(HttpResponse<Void> response, String json, String url, Moment sent, List<String> keys) {
            int status = response.statusCode();
            Map<String, Object> body = Map.of();
            try {
                body = Json.read(json);
            } catch (IllegalArgumentException e) {
                // 204 has no body, and what is in between may answer in HTML.
            }
            long lease = body.get("ttl_ms") instanceof Long ms ? Math.min(ms, FOREVER / MILLISECOND) * MILLISECOND : 0;
            Map<String, Long> tokens = new LinkedHashMap<>();
            for (String key : keys) {
                if (body.get("tokens") instanceof Map<?, ?> all && all.get(key) instanceof Long token) {
                    tokens.put(key, token);
                }
            }
            boolean locks = status == 200 || status == 204 && !response.request().method().equals("DELETE");
            if (locks && (lease <= 0 || tokens.size() < keys.size())) {
                return none(url + ": a malformed answer");
            }
            String text = Stream.of(url, "answers", status, body.get("title"), body.get("detail"))
                .filter(Objects::nonNull).map(Object::toString).collect(Collectors.joining(" "));
            long after = response.headers().firstValue("Retry-After").filter(value -> value.matches("[0-9]{1,9}"))
                .map(Long::valueOf).orElse(0L) * SECOND;
            return new Answer(status, body, text, after, sent, lease, Collections.unmodifiableMap(tokens));
        }

        boolean done() {
            return status == 200 || status == 204;
        }

        boolean again() {
            return status == 0 || status == 429 || status >= 500 && status != 508;
        }
    }

    /** A time, by two clocks. */
    private record Moment(long steady, long wall) {
        static Moment now() {
            return new Moment(System.nanoTime(), System.currentTimeMillis());
        }

        /** Returns the time since, by the clock that counts more: one may stop while the machine sleeps. */
        long since() {
            return Math.max(System.nanoTime() - steady, (System.currentTimeMillis() - wall) * MILLISECOND);
        }
    }

    /** Reads JSON (RFC 8259) of up to 8 levels, with integers as Long, and refuses all else. */
    static final class Json {
        private static final Pattern PLAIN =
            Pattern.compile("true|false|null|(-?(?:0|[1-9][0-9]*))(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?");
        private final String text;
        private int at;

        private Json(String text) {
            this.text = text;
        }

        /** Returns the members of the object that the text is, or throws IllegalArgumentException. */
        static Map<String, Object> read(String text) {
            Json json = new Json(text);
            try {
                json.expect('{');
                Map<String, Object> members = json.members(1);
                json.skip(' ');
                if (json.at == text.length()) {
                    return members;
                }
            } catch (IndexOutOfBoundsException e) {
                // It ends too early.
            }
            throw json.malformed();
        }

        private Map<String, Object> members(int level) {
            Map<String, Object> members = new LinkedHashMap<>();
            while (!skip('}')) {
                if (!members.isEmpty()) {
                    expect(',');
                }
                expect('"');
                String name = string();
                expect(':');
                members.put(name, value(level));
            }
            return members;
        }

        private Object value(int level) {
            if (level < 8 && skip('{')) {
                return members(level + 1);
            }
            if (level < 8 && skip('[')) {
                List<Object> items = new ArrayList<>();
                while (!skip(']')) {
                    if (!items.isEmpty()) {
                        expect(',');
                    }
                    items.add(value(level + 1));
                }
                return items;
            }
            if (skip('"')) {
                return string();
            }
            Matcher plain = PLAIN.matcher(text).region(at, text.length());
            if (!plain.lookingAt()) {
                throw malformed();
            }
            at = plain.end();
            return switch (plain.group()) {
                case "true" -> true;
                case "false" -> false;
                case "null" -> null;
                default -> plain.end(1) == at ? (Object) Long.valueOf(plain.group()) : Double.valueOf(plain.group());
            };
        }

        private String string() {
            StringBuilder string = new StringBuilder();
            for (char c = text.charAt(at++); c != '"'; c = text.charAt(at++)) {
                if (c < ' ') {
                    throw malformed();
                }
                if (c == '\\') {
                    c = text.charAt(at++);
                    int escape = "\"\\/bfnrtu".indexOf(c);
                    if (escape < 0) {
                        throw malformed();
                    }
                    c = c == 'u' ? (char) HexFormat.fromHexDigits(text, at, at += 4)
                        : "\"\\/\b\f\n\r\t".charAt(escape);
                }
                string.append(c);
            }
            return string.toString();
        }

        private void expect(char c) {
            if (!skip(c)) {
                throw malformed();
            }
        }

        /** Skips white space, and c if it is next. */
        private boolean skip(char c) {
            while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
                at++;
            }
            boolean next = at < text.length() && text.charAt(at) == c;
            at += next ? 1 : 0;
            return next;
        }

        private IllegalArgumentException malformed() {
            return new IllegalArgumentException("keyway: malformed JSON at character " + at);
        }
    }

    private static Answer await(CompletableFuture<Answer> answer) throws InterruptedException {
        try {
            return answer.get();
        } catch (ExecutionException e) {
            throw new IllegalStateException(e);
        } finally {
            answer.cancel(false);
        }
    }

    /** Runs a task after a time, unless the result is completed with false before. */
    private static CompletableFuture<Boolean> after(long time, Runnable task) {
        CompletableFuture<Boolean> due = new CompletableFuture<Boolean>().completeOnTimeout(true, time, NANOSECONDS);
        due.thenAccept(now -> {
            if (now) {
                task.run();
            }
        });
        return due;
    }

    private static void add(List<String> query, String name, String value) {
        if (value != null) {
            query.add(name + "=" + URLEncoder.encode(value, UTF_8));
        }
    }

    private static long jitter(long time) {
        return (long) (time * ThreadLocalRandom.current().nextDouble(0.5, 1));
    }

    private static long nanos(Duration time) {
        return time.compareTo(Duration.ofNanos(FOREVER)) < 0 ? time.toNanos() : FOREVER;
    }

    private static long now() {
        return System.nanoTime() - START;
    }
}
