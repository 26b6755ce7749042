package bench;

import java.util.Map;

/** The result line of everything that sends for a while. */
final class Summary {
    private Summary() {
    }

    /** Latencies are of requests; a request carries {@code messagesPerRequest} messages. */
    static Map<String, Object> of(
        Histogram latencies, int messagesPerRequest, Window window, Errors errors, Map<String, Object> setting) {
        long messages = latencies.count() * messagesPerRequest;
        Map<String, Object> fields = Events.fields(
            "seconds", window.seconds(),
            "messages", messages,
            "messagesPerSecond", (double) messages / window.seconds(),
            "errors", errors.total(),
            "errorKinds", errors.byKind(),
            "meanMicros", latencies.meanMicros(),
            "medianMicros", latencies.quantileMicros(0.5),
            "p99Micros", latencies.quantileMicros(0.99),
            "p999Micros", latencies.quantileMicros(0.999),
            "maxMicros", latencies.maxMicros(),
            "clientCpuMicrosPerMessage", messages == 0 ? 0 : window.cpuNanos() / 1e3 / messages);
        fields.putAll(setting);
        return fields;
    }
}
