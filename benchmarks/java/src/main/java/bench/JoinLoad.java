package bench;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.DoubleStream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * {@code join --group G --queues 8 --joins 5 --warmupJoins 2}: a push consumer has all queues of a topic, to which
 * somebody sends all the time, and a second one joins its group and leaves it again, so many times. Medians of the time
 * from the start of the second one until it gets a message, and until it has got one of each queue of its half.
 */
final class JoinLoad {
    private static final long TIMEOUT_NANOS = TimeUnit.SECONDS.toNanos(60);

    private final String namesrv;
    private final String topic;
    private final String group;

    private JoinLoad(Options options) {
        namesrv = options.text("namesrv");
        topic = options.text("topic");
        group = options.text("group");
    }

    static Map<String, Object> run(Options options) throws Exception {
        JoinLoad load = new JoinLoad(options);
        int queues = options.number("queues", 8);
        int joins = options.number("joins", 5);
        int warmupJoins = options.number("warmupJoins", 2);
        options.refuseUnknown();
        double[] first = new double[joins];
        double[] all = new double[joins];
        Member standing = load.new Member("standing");
        standing.start();
        standing.await(queues);
        Events.emit("measuring");
        for (int number = -warmupJoins; number < joins; number++) {
            Member joining = load.new Member("joining" + number);
            joining.start();
            joining.await(queues / 2);
            if (number >= 0) {
                first[number] = joining.millisUntilFirst();
                all[number] = joining.millisUntilLast();
            }
            joining.stop();
            standing.forget();
            standing.await(queues);
        }
        Events.emit("measured");
        return Events.fields("joins", joins, "firstMillis", median(first), "allMillis", median(all));
    }

    private static double median(double[] values) {
        double[] sorted = DoubleStream.of(values).sorted().toArray();
        int middle = sorted.length / 2;
        return sorted.length % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
    }

    /** A consumer, and the queues that it has got messages of. */
    private final class Member {
        private final DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        private final Set<Integer> queues = ConcurrentHashMap.newKeySet();
        private long started;
        private volatile long first;
        private volatile long last;

        Member(String name) throws MQClientException {
            consumer.setNamesrvAddr(namesrv);
            consumer.setInstanceName(name);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            // As for the other loads: a first rebalance that does not get through to the broker would cost 30 s.
            consumer.setHeartbeatBrokerInterval(1000);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> received(message.getQueueId()));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }

        void start() throws MQClientException {
            Clients.add(consumer::shutdown);
            started = System.nanoTime();
            consumer.start();
        }

        void stop() {
            consumer.shutdown();
        }

        private synchronized void received(int queue) {
            if (queues.add(queue)) {
                last = System.nanoTime();
                if (queues.size() == 1) {
                    first = last;
                }
                notifyAll();
            }
        }

        synchronized void forget() {
            queues.clear();
        }

        synchronized void await(int count) throws InterruptedException {
            long deadline = System.nanoTime() + TIMEOUT_NANOS;
            while (queues.size() < count) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("messages of " + queues.size() + " queues, not of " + count);
                }
                wait(100);
            }
        }

        double millisUntilFirst() {
            return (first - started) / 1e6;
        }

        double millisUntilLast() {
            return (last - started) / 1e6;
        }
    }
}
