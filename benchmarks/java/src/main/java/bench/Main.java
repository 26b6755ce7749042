package bench;

import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Load through Apache's Java client: {@code Main COMMAND --namesrv A --topic T [--option value]...}. Without
 * arguments it runs one load after another, each given as a JSON array of these words on a line of standard input:
 * the client's code stays compiled, so that a load needs no warm-up of its own.
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

    public static void main(String[] words) throws IOException {
        boolean succeeded = words.length > 0 ? run(words) : serve();
        // Not exit(): clients that still run would delay it by up to three seconds.
        Runtime.getRuntime().halt(succeeded ? 0 : 1);
    }

    /** Run loads until standard input ends or one of them fails. */
    private static boolean serve() throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        boolean succeeded = true;
        for (String line = lines.readLine(); succeeded && line != null; line = lines.readLine()) {
            succeeded = run(JSON.parseArray(line).toArray(new String[0]));
        }
        return succeeded;
    }

    private static boolean run(String[] words) {
        try {
            if (words.length == 0 || !LOADS.containsKey(words[0])) {
                throw new IllegalArgumentException("the first word has to be one of " + LOADS.keySet());
            }
            Map<String, Object> result = LOADS.get(words[0]).run(new Options(words));
            Clients.shutdown();
            Events.emit("result", Events.fields("ok", true, "load", words[0]), result);
            return true;
        } catch (Exception e) {
            e.printStackTrace();
            Clients.shutdown();
            Events.emit("result", Events.fields("ok", false, "message", e.toString()), Map.of());
            return false;
        }
    }
}
