package bench;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;

/** What went wrong, by kind: {@code MQBrokerException 2}, {@code RemotingTimeoutException}, {@code FLUSH_DISK_TIMEOUT}. */
final class Errors {
    private final Map<String, LongAdder> counts = new ConcurrentHashMap<>();
    private volatile Window window;

    /** From now on only what goes wrong in the window counts: a broker that is warming up may refuse much. */
    void within(Window window) {
        this.window = window;
    }

    void count(Throwable error) {
        String code = "";
        if (error instanceof MQBrokerException refused) {
            code = " " + refused.getResponseCode();
        } else if (error instanceof MQClientException refused) {
            code = " " + refused.getResponseCode();
        }
        count(error.getClass().getSimpleName() + code);
    }

    /** True when the messages are stored; anything else is counted. */
    boolean isStored(SendResult result) {
        if (result.getSendStatus() == SendStatus.SEND_OK) {
            return true;
        }
        count(result.getSendStatus().name());
        return false;
    }

    private void count(String kind) {
        if (window != null && !window.holds(System.nanoTime())) {
            return;
        }
        counts.computeIfAbsent(kind, ignored -> new LongAdder()).increment();
    }

    long total() {
        return counts.values().stream().mapToLong(LongAdder::sum).sum();
    }

    Map<String, Object> byKind() {
        Map<String, Object> kinds = new TreeMap<>();
        counts.forEach((kind, count) -> kinds.put(kind, count.sum()));
        return kinds;
    }
}
