package interop;

import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * {@code scan --namesrv A --group G --cluster C --queue TOPIC@ID...}: all messages of these queues from their first
 * offset to their end, also of topics that clients have no route of. The broker is found by the topic that is named
 * after its cluster.
 */
final class ScanCommand {
    private static final int MOST_AT_ONCE = 32;

    private final DefaultMQPullConsumer consumer;
    private final String brokerName;
    private int received;

    @SuppressWarnings("deprecation")
    private ScanCommand(DefaultMQPullConsumer consumer, String cluster) throws Exception {
        this.consumer = consumer;
        brokerName = consumer.fetchSubscribeMessageQueues(cluster).iterator().next().getBrokerName();
    }

    @SuppressWarnings("deprecation")
    static Map<String, Object> run(Arguments arguments, Stop stop) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(arguments.text("group"));
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        String cluster = arguments.text("cluster", "DefaultCluster");
        List<String> queues = arguments.all("queue");
        arguments.refuseUnknown();
        consumer.start();
        try {
            ScanCommand command = new ScanCommand(consumer, cluster);
            for (String queue : queues) {
                command.scan(queue);
            }
            return Output.fields("count", command.received);
        } finally {
            QuickShutdown.of(consumer::shutdown);
        }
    }

    @SuppressWarnings("deprecation")
    private void scan(String name) throws Exception {
        int at = name.lastIndexOf('@');
        MessageQueue queue =
            new MessageQueue(name.substring(0, at), brokerName, Integer.parseInt(name.substring(at + 1)));
        long first = consumer.minOffset(queue);
        // An empty queue of batches begins at -1.
        long next = Math.max(0, first);
        PullResult result = consumer.pull(queue, "*", next, MOST_AT_ONCE);
        while (result.getPullStatus() == PullStatus.FOUND) {
            for (MessageExt message : result.getMsgFoundList()) {
                received++;
                Output.event("message", Messages.describe(message));
            }
            next = result.getNextBeginOffset();
            result = consumer.pull(queue, "*", next, MOST_AT_ONCE);
        }
        Output.event("queue", "topic", queue.getTopic(), "queueId", queue.getQueueId(), "status",
            result.getPullStatus().name(), "minOffset", first, "maxOffset", result.getMaxOffset());
    }
}
