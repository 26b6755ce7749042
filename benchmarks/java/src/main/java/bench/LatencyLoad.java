package bench;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * {@code latency --rate 5000 --size 1024 --threads 32}: from the moment when a send is due until the listener has
 * the message, in one process with one clock. If the broker does not keep up with the plan, the rate shows it.
 */
final class LatencyLoad {
    private static final long CONSUMER_READY_SECONDS = 60;
    private static final int PROBE_MILLIS = 200;
    private static final long PROBE = -1;

    private final Producers producers;
    private final DefaultMQPushConsumer consumer;
    private final Errors errors = new Errors();
    private final Histogram latencies = new Histogram();
    private final CountDownLatch listening = new CountDownLatch(1);
    private final int threads;
    private final long periodNanos;
    private volatile Window window;

    private LatencyLoad(Producers producers, DefaultMQPushConsumer consumer, int threads, int rate) {
        this.producers = producers;
        this.consumer = consumer;
        this.threads = threads;
        this.periodNanos = 1_000_000_000L / rate;
    }

    static Map<String, Object> run(Options options) throws Exception {
        int rate = options.number("rate", 5000);
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(options.text("group", "bench-latency-" + System.currentTimeMillis()));
        consumer.setNamesrvAddr(options.text("namesrv"));
        LatencyLoad load = new LatencyLoad(new Producers(options), consumer, options.number("threads", 32), rate);
        load.listen(options.text("topic"));
        load.window = Window.open(options);
        load.errors.within(load.window);
        List<Thread> senders =
            IntStream.range(0, load.threads).mapToObj(i -> new Thread(() -> load.send(i), "sender-" + i)).toList();
        senders.forEach(Thread::start);
        load.window.announce();
        for (Thread sender : senders) {
            sender.join();
        }
        synchronized (load.latencies) {
            return Summary.of(load.latencies, 1, load.window, load.errors, Events.fields("rate", rate));
        }
    }

    /** Returns when a message has come through: until then the group has no queues yet. */
    private void listen(String topic) throws Exception {
        consumer.subscribe(topic, "*");
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(this::received);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        Clients.add(consumer::shutdown);
        consumer.start();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(CONSUMER_READY_SECONDS);
        do {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("no message came in " + CONSUMER_READY_SECONDS + " s");
            }
            producers.producer().send(producers.message(stamp(PROBE)));
        } while (!listening.await(PROBE_MILLIS, TimeUnit.MILLISECONDS));
    }

    /**
     * Every thread sends its share of the rate, at its own moments. A message counts from the moment when its send was
     * due, also if a slow broker or a pause delays that send: otherwise the slowest moments would not be counted.
     */
    private void send(int first) {
        long step = threads * periodNanos;
        long due = System.nanoTime() + first * periodNanos;
        while (!window.isOver()) {
            LockSupport.parkNanos(due - System.nanoTime());
            try {
                errors.isStored(producers.producer().send(producers.message(stamp(due))));
            } catch (Exception e) {
                errors.count(e);
            }
            due += step;
        }
    }

    private static byte[] stamp(long nanos) {
        return ByteBuffer.allocate(Long.BYTES).putLong(nanos).array();
    }

    private void received(MessageExt message) {
        long now = System.nanoTime();
        long sent = ByteBuffer.wrap(message.getBody()).getLong();
        if (sent == PROBE) {
            listening.countDown();
        } else if (window.holds(now)) {
            synchronized (latencies) {
                latencies.record(now - sent);
            }
        }
    }
}
