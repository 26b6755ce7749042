package bench;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/**
 * {@code faults --rate 2000 --size 1024 --tolerance true}: sends at a rate, whatever becomes of what was sent before,
 * while whoever runs this lets a broker fail when the counting begins. A body begins with its number and a colon.
 *
 * <p>The sends are synchronous, each in a thread: for asynchronous ones the client takes the time until a request is
 * written for a broker's latency. They are tried again as the client does by default.
 */
final class FaultLoad {
    private static final int TIMEOUT_MILLIS = 3000;
    private static final int RETRIES = 2;
    private static final int MOST_THREADS = 4096;
    private static final long NANOS = 1_000_000_000L;

    private final Producers producers;
    private final Errors errors = new Errors();
    private final BitSet acknowledged = new BitSet();
    private final List<Histogram> seconds = new ArrayList<>();
    private final long periodNanos;
    private final long began;

    private FaultLoad(Producers producers, int rate, int seconds) {
        this.producers = producers;
        this.periodNanos = NANOS / rate;
        for (int second = 0; second <= seconds; second++) {
            this.seconds.add(new Histogram());
        }
        this.began = System.nanoTime();
    }

    static Map<String, Object> run(Options options) throws Exception {
        int rate = options.number("rate", 2000);
        boolean tolerance = Boolean.parseBoolean(options.text("tolerance", "true"));
        int warmupSeconds = options.number("warmupSeconds", 5);
        int seconds = options.number("seconds", 10);
        DefaultMQProducer producer = new DefaultMQProducer("bench-faults");
        producer.setSendMsgTimeout(TIMEOUT_MILLIS);
        producer.setSendLatencyFaultEnable(tolerance);
        producer.setStartDetectorEnable(tolerance);
        Producers producers = new Producers(options, producer);
        producer.setRetryTimesWhenSendFailed(RETRIES);
        Window window = Window.open(options);
        FaultLoad load = new FaultLoad(producers, rate, warmupSeconds + seconds);
        ThreadPoolExecutor senders = new ThreadPoolExecutor(
            0, MOST_THREADS, 60, TimeUnit.SECONDS, new SynchronousQueue<>(), new ThreadPoolExecutor.CallerRunsPolicy());
        int[] sent = new int[1];
        Thread pace = new Thread(() -> sent[0] = load.pace(window, senders), "pace");
        pace.start();
        window.announce();
        pace.join();
        senders.shutdown();
        if (!senders.awaitTermination(RETRIES * TIMEOUT_MILLIS + 10_000, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("sends have not ended");
        }
        return load.result(sent[0], warmupSeconds, seconds);
    }

    /** Starts a send whenever one is due; how many there were. */
    private int pace(Window window, ThreadPoolExecutor senders) {
        int number = 0;
        for (long due = System.nanoTime(); !window.isOver(); due += periodNanos) {
            LockSupport.parkNanos(due - System.nanoTime());
            int next = number++;
            senders.execute(() -> send(next));
        }
        return number;
    }

    private void send(int number) {
        byte[] beginning = (number + ":").getBytes(StandardCharsets.US_ASCII);
        long start = System.nanoTime();
        try {
            if (errors.isStored(producers.producer().send(producers.message(beginning)))) {
                synchronized (acknowledged) {
                    acknowledged.set(number);
                }
            }
        } catch (Exception e) {
            errors.count(e);
        }
        long end = System.nanoTime();
        Histogram latencies = seconds.get((int) Math.min((start - began) / NANOS, seconds.size() - 1));
        synchronized (latencies) {
            latencies.record(end - start);
        }
    }

    private Map<String, Object> result(int sent, int warmupSeconds, int counted) {
        List<Integer> failed = new ArrayList<>();
        for (int number = acknowledged.nextClearBit(0); number < sent; number = acknowledged.nextClearBit(number + 1)) {
            failed.add(number);
        }
        Histogram before = new Histogram();
        seconds.subList(warmupSeconds / 2, warmupSeconds).forEach(before::merge);
        List<Double> medians =
            seconds.subList(warmupSeconds, warmupSeconds + counted).stream().map(FaultLoad::medianMillis).toList();
        return Events.fields(
            "sent", sent,
            "failed", failed,
            "errors", errors.total(),
            "errorKinds", errors.byKind(),
            "medianMillisBefore", medianMillis(before),
            "medianMillis", medians);
    }

    private static double medianMillis(Histogram latencies) {
        return latencies.quantileMicros(0.5) / 1e3;
    }
}
