package interop;

import java.lang.reflect.Field;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.impl.consumer.RebalanceImpl;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/**
 * {@code consume --namesrv A --topic T --group G}: a push consumer until {@code --count} different messages came, or
 * {@code --deliveries} of any messages, {@code --wait-s} seconds passed or it is told to stop. Events: started, ready
 * (queues assigned), message.
 */
final class ConsumeCommand {
    // Not the client's 30 s: its first rebalance raises the version of the subscription, and now and then the
    // heartbeat that should tell the broker is left out (another one is being sent). The broker then refuses every
    // pull (SUBSCRIPTION_NOT_LATEST) until the next.
    private static final int HEARTBEAT_MILLIS = 5000;
    private static final long SHUTDOWN_MILLIS = 3000;

    private final DefaultMQPushConsumer consumer;
    private final int expected;
    private final int expectedDeliveries;
    private final Set<String> seen = new HashSet<>();
    private final AtomicInteger toRefuse;
    private final long slowMillis;
    private int deliveries;

    private ConsumeCommand(Arguments arguments) throws Exception {
        expected = arguments.integer("count", Integer.MAX_VALUE);
        expectedDeliveries = arguments.integer("deliveries", Integer.MAX_VALUE);
        toRefuse = new AtomicInteger(arguments.integer("refuse-first", 0));
        slowMillis = arguments.number("slow-ms", 0);
        consumer = new DefaultMQPushConsumer(arguments.text("group"), Keys.hook());
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        if (arguments.has("namespace")) {
            consumer.setNamespace(arguments.text("namespace"));
        }
        consumer.setConsumeFromWhere(switch (arguments.text("from", "first")) {
            case "first" -> ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET;
            case "last" -> ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET;
            case "timestamp" -> ConsumeFromWhere.CONSUME_FROM_TIMESTAMP;
            default -> throw new UsageException("--from first, last or timestamp");
        });
        if (arguments.has("timestamp")) {
            consumer.setConsumeTimestamp(arguments.text("timestamp"));
        }
        consumer.setMessageModel(arguments.flag("broadcast") ? MessageModel.BROADCASTING : MessageModel.CLUSTERING);
        int threads = arguments.integer("threads", consumer.getConsumeThreadMin());
        consumer.setConsumeThreadMin(threads);
        consumer.setConsumeThreadMax(threads);
        consumer.setPullBatchSize(arguments.integer("pull-batch", consumer.getPullBatchSize()));
        consumer.setConsumeMessageBatchMaxSize(arguments.integer("consume-batch", 1));
        consumer.setHeartbeatBrokerInterval(arguments.integer("heartbeat-ms", HEARTBEAT_MILLIS));
        // By default a shutdown interrupts listeners, and what they have just accepted is not committed.
        consumer.setAwaitTerminationMillisWhenShutdown(SHUTDOWN_MILLIS);
        if (arguments.flag("pop")) {
            // Then the broker says which queues it has, and whether it pulls or pops (setConsumeMode).
            consumer.setClientRebalance(false);
            refuseFor(arguments.integer("pop-delay-s", 10));
            consumer.setPopInvisibleTime(arguments.number("pop-invisible-ms", consumer.getPopInvisibleTime()));
        }
        subscribe(arguments);
        listen(arguments.flag("orderly"));
    }

    static Map<String, Object> run(Arguments arguments, Stop stop) throws Exception {
        ConsumeCommand command = new ConsumeCommand(arguments);
        long timeoutMillis = arguments.number("wait-s", 30) * 1000;
        arguments.refuseUnknown();
        long start = System.nanoTime();
        boolean complete;
        command.consumer.start();
        try {
            Output.event("started", "clientId", command.consumer.buildMQClientId());
            complete = command.await(stop, timeoutMillis);
        } finally {
            QuickShutdown.of(command.consumer::shutdown);
        }
        synchronized (command) {
            return Output.fields("ok", complete, "stopped", stop.wasAsked(), "count", command.seen.size(),
                "deliveries", command.deliveries, "elapsedMs", (System.nanoTime() - start) / 1_000_000);
        }
    }

    /** What is refused comes again after so many seconds; the client's own 10, 30, 60 ... cannot be set. */
    private void refuseFor(int seconds) throws ReflectiveOperationException {
        Field levels = DefaultMQPushConsumerImpl.class.getDeclaredField("popDelayLevel");
        levels.setAccessible(true);
        Arrays.fill((int[]) levels.get(consumer.getDefaultMQPushConsumerImpl()), seconds);
    }

    private void subscribe(Arguments arguments) throws Exception {
        String topic = arguments.text("topic");
        if (arguments.has("sql")) {
            consumer.subscribe(topic, MessageSelector.bySql(arguments.text("sql")));
        } else {
            consumer.subscribe(topic, arguments.text("tag", "*"));
        }
    }

    private void listen(boolean orderly) {
        if (orderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                accept(messages) ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                accept(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
    }

    private boolean accept(List<MessageExt> messages) {
        boolean accepted = toRefuse.getAndUpdate(left -> Math.max(0, left - 1)) == 0;
        for (MessageExt message : messages) {
            Map<String, Object> fields = Output.fields("accepted", accepted);
            fields.putAll(Messages.describe(message));
            Output.event("message", fields);
        }
        LockSupport.parkNanos(slowMillis * 1_000_000);
        synchronized (this) {
            deliveries += messages.size();
            if (accepted) {
                messages.forEach(message -> seen.add(identity(message)));
            }
            notifyAll();
        }
        return accepted;
    }

    /** Not the message id: the messages of one batch share theirs. */
    private static String identity(MessageExt message) {
        return message.getBrokerName() + '/' + message.getTopic() + '/' + (message.getReconsumeTimes() > 0)
            + '/' + message.getQueueId() + '/' + message.getQueueOffset();
    }

    /** True when all expected messages or deliveries came or the stop was asked for, false when the time is over. */
    private boolean await(Stop stop, long timeoutMillis) throws InterruptedException {
        long deadline = System.nanoTime() + timeoutMillis * 1_000_000;
        boolean announced = false;
        while (System.nanoTime() < deadline) {
            if (!announced && hasQueues()) {
                announced = true;
                Output.event("ready");
            }
            synchronized (this) {
                if (seen.size() >= expected || deliveries >= expectedDeliveries) {
                    return true;
                }
                wait(20);
            }
            if (stop.wasAsked()) {
                return true;
            }
        }
        return false;
    }

    private boolean hasQueues() {
        RebalanceImpl rebalance = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl();
        return Stream.concat(
                rebalance.getProcessQueueTable().keySet().stream(),
                rebalance.getPopProcessQueueTable().keySet().stream())
            .anyMatch(queue -> !queue.getTopic().startsWith("%RETRY%"));
    }
}
