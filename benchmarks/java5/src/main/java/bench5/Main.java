package bench5;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Measures a gRPC endpoint: {@code Main HOST:PORT}. Each line on standard input is one load, which it answers by one
 * JSON object:
 *
 * <ul>
 * <li>{@code send TOPIC THREADS SECONDS WARMUP-SECONDS}: synchronous sends of 128 B
 * <li>{@code fill TOPIC THREADS COUNT}
 * <li>{@code join TOPIC GROUP}: receive until a new group has offsets; it begins at the end of the queues
 * <li>{@code drain TOPIC GROUP THREADS COUNT}: receive up to 32 messages, then acknowledge each of them
 * </ul>
 */
public final class Main {
    private static final int BODY_BYTES = 128;
    private static final int RECEIVED = 32;
    private static final Duration INVISIBLE = Duration.ofSeconds(60);
    private static final Duration HELD = Duration.ofSeconds(1);
    private static final int EMPTY_RECEIVES = 3;
    private static final long NANOS = 1_000_000_000L;
    private static final long PATIENCE_NANOS = 120 * NANOS;

    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final ClientConfiguration configuration;

    private Main(String endpoint) {
        configuration = ClientConfiguration.newBuilder().setEndpoints(endpoint).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(10)).build();
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream lines = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Main main = new Main(arguments[0]);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            lines.println(main.run(line.split(" ")));
        }
        System.exit(0);
    }

    private String run(String[] words) {
        try {
            return switch (words[0]) {
                case "send" -> send(words[1], number(words[2]), number(words[3]), number(words[4]), 0);
                case "fill" -> send(words[1], number(words[2]), 0, 0, number(words[3]));
                case "join" -> join(words[1], words[2]);
                case "drain" -> drain(words[1], words[2], number(words[3]), number(words[4]));
                default -> throw new IllegalArgumentException("unknown load " + words[0]);
            };
        } catch (Exception e) {
            e.printStackTrace();
            return "{\"event\":\"failed\",\"message\":\"" + e.toString().replaceAll("[^ -~]|[\"\\\\]", " ") + "\"}";
        }
    }

    private static int number(String word) {
        return Integer.parseInt(word);
    }

    // --- sends ---

    /** Send for a time, or a number of messages. */
    private String send(String topic, int threads, int seconds, int warmUpSeconds, int count) throws Exception {
        try (Producer producer = provider.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(topic).build()) {
            Message message = provider.newMessageBuilder().setTopic(topic).setBody(new byte[BODY_BYTES]).build();
            long begin = System.nanoTime() + warmUpSeconds * NANOS;
            long end = count > 0 ? Long.MAX_VALUE : begin + seconds * NANOS;
            AtomicLong left = new AtomicLong(count > 0 ? count : Long.MAX_VALUE);
            AtomicLong failed = new AtomicLong();
            List<Times> times = new ArrayList<>();
            List<Thread> senders = new ArrayList<>();
            for (int i = 0; i < threads; i++) {
                Times own = new Times();
                times.add(own);
                senders.add(new Thread(() -> {
                    for (long start = System.nanoTime(); start < end && left.getAndDecrement() > 0; ) {
                        boolean stored = isSent(producer, message);
                        long now = System.nanoTime();
                        if (!stored) {
                            failed.incrementAndGet();
                        } else if (start >= begin && now <= end) {
                            own.add(now - start);
                        }
                        start = now;
                    }
                }, "sender-" + i));
            }
            return measured(senders, times, failed, Math.min(begin, System.nanoTime()), seconds);
        }
    }

    private static boolean isSent(Producer producer, Message message) {
        try {
            producer.send(message);
            return true;
        } catch (ClientException e) {
            return false;
        }
    }

    private static String measured(
        List<Thread> senders, List<Times> times, AtomicLong failed, long start, int seconds) throws Exception {
        for (Thread sender : senders) {
            sender.start();
        }
        for (Thread sender : senders) {
            sender.join();
        }
        double took = seconds > 0 ? seconds : (System.nanoTime() - start) / 1e9;
        long[] sorted = Times.sorted(times);
        return result(sorted.length, took, failed.get(), Times.quantileMicros(sorted, 0.5),
            Times.quantileMicros(sorted, 0.99));
    }

    // --- receives ---

    private SimpleConsumer consumer(String topic, String group) throws ClientException {
        return provider.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setAwaitDuration(HELD).setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).build();
    }

    private String join(String topic, String group) throws ClientException, java.io.IOException {
        try (SimpleConsumer consumer = consumer(topic, group)) {
            for (int i = 0; i < EMPTY_RECEIVES; i++) {
                for (MessageView view : consumer.receive(RECEIVED, INVISIBLE)) {
                    consumer.ack(view);
                }
            }
        }
        return "{\"event\":\"result\"}";
    }

    private String drain(String topic, String group, int threads, int count) throws Exception {
        try (SimpleConsumer consumer = consumer(topic, group)) {
            AtomicLong first = new AtomicLong();
            AtomicLong last = new AtomicLong();
            AtomicLong acknowledged = new AtomicLong();
            AtomicLong failed = new AtomicLong();
            long limit = System.nanoTime() + PATIENCE_NANOS;
            List<Thread> receivers = new ArrayList<>();
            for (int i = 0; i < threads; i++) {
                receivers.add(new Thread(() -> {
                    while (acknowledged.get() < count && System.nanoTime() < limit) {
                        try {
                            for (MessageView view : consumer.receive(RECEIVED, INVISIBLE)) {
                                first.compareAndSet(0, System.nanoTime());
                                consumer.ack(view);
                                if (acknowledged.incrementAndGet() == count) {
                                    last.set(System.nanoTime());
                                }
                            }
                        } catch (ClientException e) {
                            failed.incrementAndGet();
                        }
                    }
                }, "receiver-" + i));
            }
            for (Thread receiver : receivers) {
                receiver.start();
            }
            for (Thread receiver : receivers) {
                receiver.join();
            }
            if (last.get() == 0) {
                throw new IllegalStateException(acknowledged + " of " + count + " messages were acknowledged");
            }
            return result(count, (last.get() - first.get()) / 1e9, failed.get(), 0, 0);
        }
    }

    private static String result(long messages, double seconds, long failed, double medianMicros, double p99Micros) {
        return String.format(java.util.Locale.ROOT,
            "{\"event\":\"result\",\"messages\":%d,\"seconds\":%.3f,\"messagesPerSecond\":%.1f,\"errors\":%d,"
                + "\"medianMicros\":%.1f,\"p99Micros\":%.1f}",
            messages, seconds, messages / seconds, failed, medianMicros, p99Micros);
    }

    /** Durations that one thread measured. */
    private static final class Times {
        private long[] nanos = new long[1024];
        private int count;

        void add(long duration) {
            if (count == nanos.length) {
                nanos = Arrays.copyOf(nanos, 2 * count);
            }
            nanos[count++] = duration;
        }

        static long[] sorted(List<Times> times) {
            return times.stream().flatMapToLong(each -> Arrays.stream(each.nanos, 0, each.count)).sorted().toArray();
        }

        static double quantileMicros(long[] sorted, double share) {
            return sorted.length == 0 ? 0 : sorted[(int) (share * (sorted.length - 1))] / 1e3;
        }
    }
}
