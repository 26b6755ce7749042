package interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.admin.TopicOffset;
import org.apache.rocketmq.remoting.protocol.admin.TopicStatsTable;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.body.Connection;
import org.apache.rocketmq.remoting.protocol.body.ConsumerConnection;
import org.apache.rocketmq.remoting.protocol.body.ProducerConnection;
import org.apache.rocketmq.remoting.protocol.body.SubscriptionGroupWrapper;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.route.QueueData;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** What admin calls return, as plain JSON fields (maps with object keys become lists). */
final class Views {
    private Views() {
    }

    static Map<String, Object> topicConfig(TopicConfig config) {
        return Output.fields("topic", config.getTopicName(), "readQueues", config.getReadQueueNums(),
            "writeQueues", config.getWriteQueueNums(), "perm", config.getPerm(),
            "filterType", String.valueOf(config.getTopicFilterType()), "topicSysFlag", config.getTopicSysFlag(),
            "order", config.isOrder(), "attributes", config.getAttributes());
    }

    static Map<String, Object> topicConfigs(TopicConfigSerializeWrapper wrapper) {
        Map<String, Object> topics = new TreeMap<>();
        wrapper.getTopicConfigTable().forEach((name, config) -> topics.put(name, topicConfig(config)));
        return topics;
    }

    static Map<String, Object> route(TopicRouteData route) {
        List<Object> queues = new ArrayList<>();
        for (QueueData queue : route.getQueueDatas()) {
            queues.add(Output.fields("broker", queue.getBrokerName(), "readQueues", queue.getReadQueueNums(),
                "writeQueues", queue.getWriteQueueNums(), "perm", queue.getPerm(),
                "topicSysFlag", queue.getTopicSysFlag()));
        }
        return Output.fields("queues", queues, "brokers", brokers(route.getBrokerDatas()),
            "orderTopicConf", route.getOrderTopicConf());
    }

    static Map<String, Object> cluster(ClusterInfo cluster) {
        Map<String, Object> clusters = new TreeMap<>();
        cluster.getClusterAddrTable().forEach((name, brokers) -> clusters.put(name, new TreeSet<>(brokers)));
        return Output.fields("clusters", clusters, "brokers", brokers(cluster.getBrokerAddrTable().values()));
    }

    private static List<Object> brokers(Collection<BrokerData> brokers) {
        List<Object> list = new ArrayList<>();
        for (BrokerData broker : brokers) {
            Map<String, Object> addresses = new TreeMap<>();
            broker.getBrokerAddrs().forEach((id, address) -> addresses.put(String.valueOf(id), address));
            list.add(Output.fields("cluster", broker.getCluster(), "broker", broker.getBrokerName(),
                "addresses", addresses));
        }
        return list;
    }

    static Map<String, Object> topicStats(TopicStatsTable stats) {
        List<Object> queues = new ArrayList<>();
        stats.getOffsetTable().entrySet().stream()
            .sorted(Map.Entry.comparingByKey(Comparator.<MessageQueue>naturalOrder()))
            .forEach(entry -> {
                TopicOffset offset = entry.getValue();
                queues.add(Output.fields("broker", entry.getKey().getBrokerName(),
                    "queueId", entry.getKey().getQueueId(), "minOffset", offset.getMinOffset(),
                    "maxOffset", offset.getMaxOffset(), "lastUpdateTimestamp", offset.getLastUpdateTimestamp()));
            });
        return Output.fields("queues", queues);
    }

    static Map<String, Object> consumerConnection(ConsumerConnection connection) {
        List<Object> subscriptions = new ArrayList<>();
        for (SubscriptionData subscription : connection.getSubscriptionTable().values()) {
            subscriptions.add(Output.fields("topic", subscription.getTopic(), "expression", subscription.getSubString(),
                "expressionType", subscription.getExpressionType(), "tags", new TreeSet<>(subscription.getTagsSet())));
        }
        return Output.fields("connections", connections(connection.getConnectionSet()),
            "consumeType", String.valueOf(connection.getConsumeType()),
            "messageModel", String.valueOf(connection.getMessageModel()),
            "consumeFromWhere", String.valueOf(connection.getConsumeFromWhere()), "subscriptions", subscriptions);
    }

    static Map<String, Object> producerConnection(ProducerConnection connection) {
        return Output.fields("connections", connections(connection.getConnectionSet()));
    }

    private static List<Object> connections(Collection<Connection> connections) {
        List<Object> list = new ArrayList<>();
        for (Connection connection : connections) {
            list.add(Output.fields("clientId", connection.getClientId(), "clientAddr", connection.getClientAddr(),
                "language", String.valueOf(connection.getLanguage()), "version", connection.getVersion()));
        }
        return list;
    }

    static Map<String, Object> groups(SubscriptionGroupWrapper wrapper) {
        Map<String, Object> groups = new TreeMap<>();
        for (SubscriptionGroupConfig config : wrapper.getSubscriptionGroupTable().values()) {
            groups.put(config.getGroupName(), Output.fields("consumeEnable", config.isConsumeEnable(),
                "retryQueueNums", config.getRetryQueueNums(), "retryMaxTimes", config.getRetryMaxTimes(),
                "consumeMessageOrderly", config.isConsumeMessageOrderly(), "brokerId", config.getBrokerId()));
        }
        return Output.fields("groups", groups);
    }
}
