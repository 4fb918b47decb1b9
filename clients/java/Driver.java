package io.keyway;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.locks.LockSupport;

import static java.nio.charset.StandardCharsets.UTF_8;

/** Does what clients/conformance says, in lines of JSON: its comment has the protocol. */
final class Driver {
    private static final Map<Object, Keyway.Lock> LOCKS = new ConcurrentHashMap<>();
    private static final Map<Object, Thread> CALLERS = new ConcurrentHashMap<>();

    public static void main(String[] args) throws IOException {
        // As in a program whose parallel streams lock keys and then work, all threads of the common pool are busy.
        System.setProperty("java.util.concurrent.ForkJoinPool.common.parallelism", "2");
        for (int i = 0; i < ForkJoinPool.getCommonPoolParallelism(); i++) {
            ForkJoinPool.commonPool().execute(() -> {
                while (true) {
                    LockSupport.park();
                }
            });
        }
        Map<String, Object> settings = Keyway.Json.read(args[0]);
        Keyway service = new Keyway(strings(settings.get("urls"))).withToken((String) settings.get("token"))
            .withLabel((String) settings.get("label")).withTimeout(seconds(settings.get("timeout")));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Map<String, Object> request = Keyway.Json.read(line);
            Thread caller = new Thread(() -> say("\"id\":" + request.get("id") + run(service, request)));
            caller.setDaemon(true);
            CALLERS.put(request.get("id"), caller);
            caller.start();
        }
    }

    /** Does what a request says. Returns the members of its answer. */
    private static String run(Keyway service, Map<String, Object> request) {
        Object of = request.get("of");
        try {
            switch ((String) request.get("do")) {
                case "lock" -> {
                    return ",\"tokens\":" + tokens(lock(service, request));
                }
                case "left" -> {
                    return ",\"left\":" + LOCKS.get(of).left().toNanos() / 1e9;
                }
                case "check" -> LOCKS.get(of).check();
                case "unlock" -> LOCKS.get(of).close();
                default -> CALLERS.get(of).interrupt();
            }
            return "";
        } catch (InterruptedException e) {
            return error("Cancelled", "interrupted");
        } catch (Keyway.KeywayException e) {
            return error(e.getClass().getSimpleName().replace("Exception", ""), e.getMessage());
        }
    }

    private static Keyway.Lock lock(Keyway service, Map<String, Object> request) throws InterruptedException {
        Keyway keyway = request.get("ttl") == null ? service : service.withTtl(seconds(request.get("ttl")));
        keyway = (boolean) request.get("read") ? keyway.reading() : keyway;
        String[] keys = strings(request.get("keys"));
        Keyway.Lock lock = request.get("wait") == null ? keyway.lock(keys)
            : keyway.lock(seconds(request.get("wait")), keys);
        LOCKS.put(request.get("id"), lock);
        lock.lost().thenRun(() -> say("\"lost\":" + request.get("id")));
        return lock;
    }

    private static String tokens(Keyway.Lock lock) {
        List<String> tokens = new ArrayList<>();
        lock.tokens().forEach((key, token) -> tokens.add(quote(key) + ":" + token));
        return "{" + String.join(",", tokens) + "}";
    }

    private static String error(String name, String text) {
        return ",\"error\":" + quote(name) + ",\"text\":" + quote(text);
    }

    private static synchronized void say(String members) {
        System.out.println("{" + members + "}");
    }

    private static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            quoted.append(c < ' ' || c > '~' || c == '"' || c == '\\' ? String.format("\\u%04x", (int) c) : c);
        }
        return quoted.append('"').toString();
    }

    private static String[] strings(Object list) {
        return ((List<?>) list).toArray(String[]::new);
    }

    private static Duration seconds(Object number) {
        return Duration.ofNanos((long) (((Number) number).doubleValue() * 1e9));
    }
}
