package bench;

import com.alibaba.fastjson2.JSON;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** JSON lines on standard output; what the client prints goes to standard error. */
final class Events {
    private static final PrintStream LINES = claimStandardOutput();

    private Events() {
    }

    private static PrintStream claimStandardOutput() {
        PrintStream lines = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        return lines;
    }

    static Map<String, Object> fields(Object... namesAndValues) {
        Map<String, Object> fields = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            fields.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return fields;
    }

    static void emit(String event) {
        emit(event, Map.of(), Map.of());
    }

    static synchronized void emit(String event, Map<String, Object> first, Map<String, Object> then) {
        Map<String, Object> line = fields("event", event);
        line.putAll(first);
        line.putAll(then);
        LINES.print(JSON.toJSONString(line) + "\n");
        LINES.flush();
    }
}
