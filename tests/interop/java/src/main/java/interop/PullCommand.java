package interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * {@code pull --namesrv A --topic T --group G --api lite|old}: one queue ({@code --queue}) or, with lite, all of
 * them, from {@code --offset} on, until {@code --count} messages came or {@code --wait-s} passed.
 * {@code --commit} stores the offsets reached. The old API with {@code --block} is held by the broker for
 * {@code --suspend-ms} (20 s unless given) when there is nothing.
 */
final class PullCommand {
    private final Arguments arguments;
    private final String topic;
    private final String tag;
    private final int queueId;
    private final long offset;
    private final int expected;
    private final boolean commit;
    private final long deadline;
    private final List<Map<String, Object>> committed = new ArrayList<>();
    private int received;

    private PullCommand(Arguments arguments) {
        this.arguments = arguments;
        topic = arguments.text("topic");
        tag = arguments.text("tag", "*");
        queueId = arguments.integer("queue", -1);
        offset = arguments.number("offset", -1);
        expected = arguments.integer("count", 1);
        commit = arguments.flag("commit");
        deadline = System.nanoTime() + arguments.number("wait-s", 30) * 1_000_000_000;
    }

    static Map<String, Object> run(Arguments arguments, Stop stop) throws Exception {
        PullCommand command = new PullCommand(arguments);
        switch (arguments.text("api", "lite")) {
            case "lite" -> command.lite();
            case "old" -> command.old();
            default -> throw new UsageException("--api lite or old");
        }
        return Output.fields("ok", command.received >= command.expected, "count", command.received,
            "committed", command.committed);
    }

    private void lite() throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(arguments.text("group"), Keys.hook());
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(arguments.integer("max", consumer.getPullBatchSize()));
        boolean subscribe = arguments.flag("subscribe");
        arguments.refuseUnknown();
        if (subscribe) {
            consumer.subscribe(topic, tag);
        } else {
            consumer.setSubExpressionForAssign(topic, tag);
        }
        consumer.start();
        try {
            if (!subscribe) {
                assign(consumer);
            }
            Map<MessageQueue, Long> next = poll(consumer);
            if (commit) {
                consumer.commit(next, true);
                for (MessageQueue queue : next.keySet()) {
                    committed(queue, consumer.committed(queue));
                }
            }
        } finally {
            QuickShutdown.of(consumer::shutdown);
        }
    }

    private void assign(DefaultLitePullConsumer consumer) throws Exception {
        Collection<MessageQueue> queues = selected(consumer.fetchMessageQueues(topic));
        if (offset >= 0) {
            // Not by seek(): pulling begins with the assignment, and what it has found, or the seek itself, may
            // get lost when a seek follows at once.
            for (MessageQueue queue : queues) {
                consumer.getOffsetStore().updateOffset(queue, offset, false);
            }
        }
        consumer.assign(queues);
        Output.event("assigned", "queues", queues.size());
    }

    private Map<MessageQueue, Long> poll(DefaultLitePullConsumer consumer) {
        Map<MessageQueue, Long> next = new HashMap<>();
        while (received < expected && System.nanoTime() < deadline) {
            for (MessageExt message : consumer.poll(200)) {
                received(message);
                next.merge(new MessageQueue(message.getTopic(), message.getBrokerName(), message.getQueueId()),
                    message.getQueueOffset() + 1, Math::max);
            }
        }
        return next;
    }

    @SuppressWarnings("deprecation")
    private void old() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(arguments.text("group"));
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        int most = arguments.integer("max", 32);
        boolean block = arguments.flag("block");
        consumer.setBrokerSuspendMaxTimeMillis(
            arguments.number("suspend-ms", consumer.getBrokerSuspendMaxTimeMillis()));
        arguments.refuseUnknown();
        consumer.start();
        try {
            MessageQueue queue = selected(consumer.fetchSubscribeMessageQueues(topic)).iterator().next();
            long from = offset >= 0 ? offset : Math.max(0, consumer.fetchConsumeOffset(queue, true));
            long next = pull(consumer, queue, from, most, block);
            if (commit) {
                consumer.updateConsumeOffset(queue, next);
                consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, next, false);
                committed(queue, consumer.fetchConsumeOffset(queue, true));
            }
        } finally {
            QuickShutdown.of(consumer::shutdown);
        }
    }

    @SuppressWarnings("deprecation")
    private long pull(DefaultMQPullConsumer consumer, MessageQueue queue, long from, int most, boolean block)
        throws Exception {
        long next = from;
        while (received < expected && System.nanoTime() < deadline) {
            PullResult result = block
                ? consumer.pullBlockIfNotFound(queue, tag, next, most)
                : consumer.pull(queue, tag, next, most);
            List<MessageExt> found = result.getMsgFoundList() == null ? List.of() : result.getMsgFoundList();
            Output.event("pull", "offset", next, "status", result.getPullStatus().name(), "found", found.size(),
                "nextOffset", result.getNextBeginOffset(), "minOffset", result.getMinOffset(),
                "maxOffset", result.getMaxOffset());
            found.forEach(this::received);
            next = result.getNextBeginOffset();
            if (!block && result.getPullStatus() != PullStatus.FOUND) {
                break;
            }
        }
        return next;
    }

    private Collection<MessageQueue> selected(Collection<MessageQueue> queues) {
        if (queueId < 0) {
            return queues;
        }
        List<MessageQueue> selected = queues.stream().filter(queue -> queue.getQueueId() == queueId).toList();
        if (selected.isEmpty()) {
            throw new UsageException("topic " + topic + " has no queue " + queueId + ": " + queues);
        }
        return selected;
    }

    private void received(MessageExt message) {
        received++;
        Output.event("message", Messages.describe(message));
    }

    private void committed(MessageQueue queue, long next) {
        committed.add(Output.fields("broker", queue.getBrokerName(), "queueId", queue.getQueueId(), "offset", next));
    }
}
