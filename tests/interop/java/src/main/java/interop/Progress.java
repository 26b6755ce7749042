package interop;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;
import org.apache.rocketmq.remoting.protocol.body.BrokerStatsData;
import org.apache.rocketmq.remoting.protocol.body.ConsumeQueueData;
import org.apache.rocketmq.remoting.protocol.body.ConsumeStatsList;
import org.apache.rocketmq.remoting.protocol.body.QueryConsumeQueueResponseBody;
import org.apache.rocketmq.remoting.protocol.body.QueueTimeSpan;

/** What two brokers with the same messages must tell alike: no rates, and no places in the log. */
final class Progress {
    private Progress() {
    }

    static Map<String, Object> found(QueryResult result) {
        return Output.fields("messages", result.getMessageList().stream().map(Progress::message).toList(),
            "indexed", result.getIndexLastUpdateTimestamp() > 0);
    }

    static Map<String, Object> message(MessageExt message) {
        return Output.fields("topic", message.getTopic(), "queueId", message.getQueueId(),
            "queueOffset", message.getQueueOffset(), "storeSize", message.getStoreSize(), "keys", message.getKeys(),
            "bodySha256", Messages.sha256(message.getBody()));
    }

    static Map<String, Object> of(ConsumeStats stats) {
        List<Object> queues = new ArrayList<>();
        stats.getOffsetTable().entrySet().stream()
            .sorted(Map.Entry.comparingByKey(Comparator.<MessageQueue>naturalOrder()))
            .forEach(entry -> {
                OffsetWrapper reach = entry.getValue();
                queues.add(Output.fields("topic", entry.getKey().getTopic(), "broker", entry.getKey().getBrokerName(),
                    "queueId", entry.getKey().getQueueId(), "brokerOffset", reach.getBrokerOffset(),
                    "consumerOffset", reach.getConsumerOffset(), "lastTimestamp", reach.getLastTimestamp()));
            });
        return Output.fields("queues", queues);
    }

    /** Of one group: other tests have groups of their own. */
    static Map<String, Object> of(ConsumeStatsList list, String group) {
        Map<String, Object> groups = new TreeMap<>();
        for (Map<String, List<ConsumeStats>> each : list.getConsumeStatsList()) {
            if (each.containsKey(group)) {
                groups.put(group, each.get(group).stream().map(Progress::of).toList());
            }
        }
        return Output.fields("groups", groups, "brokerAddr", list.getBrokerAddr());
    }

    /** Without the delay: Apache's broker tells one since 1970 of a queue that was never consumed. */
    static Map<String, Object> of(List<QueueTimeSpan> spans) {
        List<Object> queues = new ArrayList<>();
        spans.stream().sorted(Comparator.comparing(QueueTimeSpan::getMessageQueue)).forEach(span ->
            queues.add(Output.fields("queueId", span.getMessageQueue().getQueueId(),
                "minTimestamp", span.getMinTimeStamp(), "maxTimestamp", span.getMaxTimeStamp(),
                "consumeTimestamp", span.getConsumeTimeStamp())));
        return Output.fields("queues", queues);
    }

    static Map<String, Object> of(QueryConsumeQueueResponseBody body) {
        List<Object> entries = new ArrayList<>();
        for (ConsumeQueueData entry : body.getQueueData()) {
            entries.add(Output.fields("size", entry.getPhysicSize(), "tagsCode", entry.getTagsCode(),
                "eval", entry.isEval(), "message", entry.getMsg()));
        }
        return Output.fields("entries", entries, "min", body.getMinQueueIndex(), "max", body.getMaxQueueIndex(),
            "hasSubscription", body.getSubscriptionData() != null, "hasFilter", body.getFilterData() != null);
    }

    /** Apache's broker counts from its next sample on, so that the figures themselves differ at first. */
    static Map<String, Object> of(BrokerStatsData data) {
        return Output.fields("minute", data.getStatsMinute() != null, "hour", data.getStatsHour() != null,
            "day", data.getStatsDay() != null);
    }
}
