package bench;

import java.util.Map;

/**
 * Load through Apache's Java client: {@code Main COMMAND --namesrv A --topic T [--option value]...}.
 *
 * <p>Writes JSON objects, one a line: {@code measuring} and {@code measured} at the moments between which things are
 * counted (so that whoever runs this can read the broker's CPU at both), and {@code result} at the end. Everything
 * is as Apache's client has it by default, except that sends are not retried (but by {@code faults}), so that errors
 * are seen.
 */
public final class Main {
    private static final Map<String, Load> LOADS = Map.of(
        "sync", SendLoad::sync,
        "oneThread", SendLoad::oneThread,
        "batch", SendLoad::batch,
        "transactions", SendLoad::transactions,
        "async", AsyncLoad::run,
        "latency", LatencyLoad::run,
        "fill", FillLoad::run,
        "drain", DrainLoad::run,
        "join", JoinLoad::run,
        "faults", FaultLoad::run);

    private Main() {
    }

    @FunctionalInterface
    interface Load {
        Map<String, Object> run(Options options) throws Exception;
    }

    public static void main(String[] words) {
        int exitCode = 0;
        try {
            if (words.length == 0 || !LOADS.containsKey(words[0])) {
                throw new IllegalArgumentException("the first word has to be one of " + LOADS.keySet());
            }
            Map<String, Object> result = LOADS.get(words[0]).run(new Options(words));
            Events.emit("result", Events.fields("ok", true, "load", words[0]), result);
        } catch (Exception e) {
            e.printStackTrace();
            Events.emit("result", Events.fields("ok", false, "message", e.toString()), Map.of());
            exitCode = 1;
        }
        // Not shutdown(): it takes up to three seconds, and every round would pay them.
        Runtime.getRuntime().halt(exitCode);
    }
}
