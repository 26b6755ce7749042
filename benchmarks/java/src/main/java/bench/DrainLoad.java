package bench;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.LongAdder;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * {@code drain --threads 20 --count 2000000}: a push consumer of a new group reads the topic from its beginning, until
 * so many different messages have come. With {@code --tags} or {@code --sql} it wants a part of the topic, and the
 * count is that of the part, of {@code --of 2000000} messages that the rate is of; with {@code --pop true} it pops, where the broker has that mode for the group.
 */
final class DrainLoad {
    private static final int POPPED_AND_NOT_ACKNOWLEDGED = 5000;

    private final int count;
    private final int of;
    private final Map<String, AtomicLongArray> seen = new ConcurrentHashMap<>();
    private final AtomicLong distinct = new AtomicLong();
    private final LongAdder deliveries = new LongAdder();
    private final AtomicLong first = new AtomicLong();
    private final CountDownLatch complete = new CountDownLatch(1);
    private volatile long last;
    private volatile boolean tooMany;

    private DrainLoad(int count, int of) {
        this.count = count;
        this.of = of;
    }

    static Map<String, Object> run(Options options) throws Exception {
        int count = options.number("count", 2_000_000);
        DrainLoad load = new DrainLoad(count, options.number("of", count));
        int threads = options.number("threads", 20);
        int timeoutSeconds = options.number("timeoutSeconds", 300);
        DefaultMQPushConsumer consumer = load.consumer(options, threads);
        options.refuseUnknown();
        long start = System.nanoTime();
        Events.emit("measuring");
        Clients.add(consumer::shutdown);
        consumer.start();
        if (!load.complete.await(timeoutSeconds, TimeUnit.SECONDS)) {
            throw new IllegalStateException(
                load.distinct + " of " + load.count + " messages came in " + timeoutSeconds + " s");
        }
        if (load.tooMany) {
            throw new IllegalStateException("the topic holds far more than " + load.of + " messages");
        }
        Events.emit("measured");
        double fromFirst = (load.last - load.first.get()) / 1e9;
        double fromStart = (load.last - start) / 1e9;
        return Events.fields("count", load.count, "threads", threads,
            "deliveries", load.deliveries.sum(),
            "secondsFromFirst", fromFirst, "messagesPerSecond", load.of / fromFirst,
            "secondsFromStart", fromStart, "messagesPerSecondFromStart", load.of / fromStart);
    }

    private DefaultMQPushConsumer consumer(Options options, int threads) throws Exception {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(options.text("group", "bench-drain-" + System.currentTimeMillis()));
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(threads);
        consumer.setConsumeThreadMax(threads);
        // The client's 30 s would now and then cost a round as much: when its first rebalance does not get through
        // to the broker, all pulls are refused until the next heartbeat.
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setClientRebalance(!Boolean.parseBoolean(options.text("pop", "false")));
        // With the client's 96 it waits for acknowledgements 50 ms at a time, and is what is measured.
        consumer.setPopThresholdForQueue(POPPED_AND_NOT_ACKNOWLEDGED);
        String sql = options.text("sql", null);
        String tags = options.text("tags", "*");
        consumer.subscribe(options.text("topic"), sql == null ? MessageSelector.byTag(tags) : MessageSelector.bySql(sql));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(this::received);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }

    private void received(MessageExt message) {
        if (first.get() == 0) {
            first.compareAndSet(0, System.nanoTime());
        }
        deliveries.increment();
        if (isNew(message) && distinct.incrementAndGet() == count) {
            last = System.nanoTime();
            complete.countDown();
        }
    }

    private boolean isNew(MessageExt message) {
        long offset = message.getQueueOffset();
        int word = (int) (offset / Long.SIZE);
        AtomicLongArray words = seen.computeIfAbsent(
            message.getBrokerName() + message.getQueueId(), queue -> new AtomicLongArray(of / Long.SIZE + 1));
        if (word >= words.length()) {
            // Thrown here it would only make the client bring the message again.
            tooMany = true;
            complete.countDown();
            return false;
        }
        long bit = 1L << (offset % Long.SIZE);
        return (words.getAndUpdate(word, bits -> bits | bit) & bit) == 0;
    }
}
