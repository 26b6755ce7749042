package interop;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * {@code admin ACTION --namesrv A}: one call of DefaultMQAdminExt, named as its method. Calls that go to one broker
 * take {@code --broker-addr}, or find the only master by themselves.
 */
final class AdminCommand {
    private static final long TIMEOUT_MILLIS = 5000;
    private static final Map<String, Action> ACTIONS = actions();

    private final Arguments arguments;
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(Keys.hook(), TIMEOUT_MILLIS);

    private AdminCommand(Arguments arguments) {
        this.arguments = arguments;
        admin.setNamesrvAddr(arguments.text("namesrv"));
    }

    @FunctionalInterface
    private interface Action {
        Map<String, Object> run(AdminCommand command) throws Exception;
    }

    static Map<String, Object> run(Arguments arguments, Stop stop) throws Exception {
        String name = arguments.word("the action");
        if (!ACTIONS.containsKey(name)) {
            throw new UsageException("no such action: " + name + "; there are " + new TreeSet<>(ACTIONS.keySet()));
        }
        AdminCommand command = new AdminCommand(arguments);
        command.admin.start();
        try {
            Map<String, Object> fields = ACTIONS.get(name).run(command);
            arguments.refuseUnknown();
            return fields;
        } finally {
            QuickShutdown.of(command.admin::shutdown);
        }
    }

    private static Map<String, Action> actions() {
        Map<String, Action> actions = new HashMap<>();
        actions.put("createAndUpdateTopicConfig", AdminCommand::createTopic);
        actions.put("examineTopicConfig", c ->
            Views.topicConfig(c.admin.examineTopicConfig(c.brokerAddr(), c.topic())));
        actions.put("getAllTopicConfig", c ->
            Output.fields("topics", Views.topicConfigs(c.admin.getAllTopicConfig(c.brokerAddr(), TIMEOUT_MILLIS))));
        actions.put("examineTopicRouteInfo", c -> Views.route(c.admin.examineTopicRouteInfo(c.topic())));
        actions.put("examineTopicStats", c -> Views.topicStats(c.admin.examineTopicStats(c.topic())));
        actions.put("examineBrokerClusterInfo", c -> Views.cluster(c.admin.examineBrokerClusterInfo()));
        actions.put("fetchAllTopicList", c ->
            Output.fields("topics", new TreeSet<>(c.admin.fetchAllTopicList().getTopicList())));
        actions.put("fetchTopicsByCluster", c -> Output.fields("topics",
            new TreeSet<>(c.admin.fetchTopicsByCLuster(c.arguments.text("cluster")).getTopicList())));
        actions.put("fetchBrokerRuntimeStats", c ->
            Output.fields("table", c.admin.fetchBrokerRuntimeStats(c.brokerAddr()).getTable()));
        actions.put("getBrokerConfig", c -> Output.fields("config", c.admin.getBrokerConfig(c.brokerAddr())));
        actions.put("updateBrokerConfig", AdminCommand::updateBrokerConfig);
        actions.put("examineConsumerConnectionInfo", c ->
            Views.consumerConnection(c.admin.examineConsumerConnectionInfo(c.group())));
        actions.put("examineProducerConnectionInfo", c ->
            Views.producerConnection(c.admin.examineProducerConnectionInfo(c.group(), c.topic())));
        actions.put("createAndUpdateSubscriptionGroupConfig", AdminCommand::createGroup);
        actions.put("getAllSubscriptionGroup", c ->
            Views.groups(c.admin.getAllSubscriptionGroup(c.brokerAddr(), TIMEOUT_MILLIS)));
        actions.put("deleteSubscriptionGroup", AdminCommand::deleteGroup);
        actions.put("maxOffset", c -> Output.fields("offset", c.admin.maxOffset(c.queue())));
        actions.put("minOffset", c -> Output.fields("offset", c.admin.minOffset(c.queue())));
        actions.put("searchOffset", c ->
            Output.fields("offset", c.admin.searchOffset(c.queue(), c.arguments.number("timestamp", 0))));
        actions.put("earliestMsgStoreTime", c -> Output.fields("timestamp", c.admin.earliestMsgStoreTime(c.queue())));
        actions.put("deleteTopicInBroker", AdminCommand::deleteTopicInBroker);
        actions.put("deleteTopicInNameServer", AdminCommand::deleteTopicInNameServer);
        actions.put("putKVConfig", AdminCommand::putKv);
        actions.put("getKVConfig", c ->
            Output.fields("value", c.admin.getKVConfig(c.arguments.text("namespace"), c.arguments.text("key"))));
        actions.put("getKVListByNamespace", c ->
            Output.fields("table", c.admin.getKVListByNamespace(c.arguments.text("namespace")).getTable()));
        actions.put("deleteKvConfig", AdminCommand::deleteKv);
        actions.put("queryMessage", c -> Progress.found(c.queryMessage()));
        actions.put("viewMessage", c -> Progress.message(c.admin.viewMessage(c.topic(), c.arguments.text("msg-id"))));
        actions.put("examineConsumeStats", c ->
            Progress.of(c.admin.examineConsumeStats(c.group(), c.arguments.text("topic", null))));
        actions.put("fetchConsumeStatsInBroker", c -> Progress.of(c.admin.fetchConsumeStatsInBroker(
            c.brokerAddr(), c.arguments.flag("order"), TIMEOUT_MILLIS), c.group()));
        actions.put("queryConsumeTimeSpan", c -> Progress.of(c.admin.queryConsumeTimeSpan(c.topic(), c.group())));
        actions.put("queryConsumeQueue", c -> Progress.of(c.admin.queryConsumeQueue(c.brokerAddr(), c.topic(),
            c.arguments.integer("queue", 0), c.arguments.number("index", 0), c.arguments.integer("count", 10),
            c.arguments.text("group", null))));
        actions.put("viewBrokerStatsData", c -> Progress.of(c.admin.viewBrokerStatsData(
            c.brokerAddr(), c.arguments.text("name"), c.arguments.text("key"))));
        actions.put("wipeWritePerm", c -> Output.fields("topics",
            c.admin.wipeWritePermOfBroker(c.arguments.text("namesrv"), c.arguments.text("broker"))));
        actions.put("addWritePerm", c -> Output.fields("topics",
            c.admin.addWritePermOfBroker(c.arguments.text("namesrv"), c.arguments.text("broker"))));
        return actions;
    }

    private Map<String, Object> createTopic() throws Exception {
        TopicConfig config = new TopicConfig(topic());
        int queues = arguments.integer("queues", 8);
        config.setReadQueueNums(arguments.integer("read-queues", queues));
        config.setWriteQueueNums(arguments.integer("write-queues", queues));
        config.setPerm(arguments.integer("perm", config.getPerm()));
        config.setOrder(arguments.flag("order"));
        config.setTopicSysFlag(arguments.integer("topic-sys-flag", 0));
        config.setAttributes(new HashMap<>(arguments.pairs("attribute")));
        long awaitRouteMillis = arguments.number("await-route-ms", 5000);
        String brokerAddr = brokerAddr();
        arguments.refuseUnknown();
        admin.createAndUpdateTopicConfig(brokerAddr, config);
        return Output.fields("brokerAddr", brokerAddr, "routeVisible", awaitRoute(config, awaitRouteMillis));
    }

    /** The broker tells the name server after it answered, so a route may be there only a moment later. */
    private boolean awaitRoute(TopicConfig config, long timeoutMillis) throws Exception {
        long deadline = System.nanoTime() + timeoutMillis * 1_000_000;
        while (System.nanoTime() < deadline) {
            try {
                TopicRouteData route = admin.examineTopicRouteInfo(config.getTopicName());
                if (route.getQueueDatas().stream().anyMatch(
                    queues -> queues.getWriteQueueNums() == config.getWriteQueueNums())) {
                    return true;
                }
            } catch (org.apache.rocketmq.client.exception.MQClientException e) {
                System.err.println("no route yet: " + e.getErrorMessage());
            }
            Thread.sleep(20);
        }
        return false;
    }

    private Map<String, Object> createGroup() throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group());
        config.setRetryMaxTimes(arguments.integer("retry-max-times", config.getRetryMaxTimes()));
        config.setRetryQueueNums(arguments.integer("retry-queues", config.getRetryQueueNums()));
        config.setConsumeEnable(!arguments.flag("disable"));
        config.setConsumeMessageOrderly(arguments.flag("orderly"));
        String brokerAddr = brokerAddr();
        arguments.refuseUnknown();
        admin.createAndUpdateSubscriptionGroupConfig(brokerAddr, config);
        return Output.fields("brokerAddr", brokerAddr);
    }

    private Map<String, Object> deleteGroup() throws Exception {
        admin.deleteSubscriptionGroup(brokerAddr(), group(), arguments.flag("remove-offset"));
        return Output.fields();
    }

    private Map<String, Object> updateBrokerConfig() throws Exception {
        java.util.Properties properties = new java.util.Properties();
        properties.putAll(arguments.pairs("set"));
        admin.updateBrokerConfig(brokerAddr(), properties);
        return Output.fields();
    }

    private Map<String, Object> deleteTopicInBroker() throws Exception {
        admin.deleteTopicInBroker(Set.of(brokerAddr()), topic());
        return Output.fields();
    }

    private Map<String, Object> deleteTopicInNameServer() throws Exception {
        admin.deleteTopicInNameServer(Set.of(arguments.text("namesrv").split(";")), topic());
        return Output.fields();
    }

    private Map<String, Object> putKv() throws Exception {
        // DefaultMQAdminExt.putKVConfig of 5.3.3 is empty; this is the call that reaches the name server (code 100).
        admin.createAndUpdateKvConfig(arguments.text("namespace"), arguments.text("key"), arguments.text("value"));
        return Output.fields();
    }

    private Map<String, Object> deleteKv() throws Exception {
        admin.deleteKvConfig(arguments.text("namespace"), arguments.text("key"));
        return Output.fields();
    }

    private QueryResult queryMessage() throws Exception {
        String key = arguments.text("key");
        int most = arguments.integer("max", 32);
        long begin = arguments.number("begin", 0);
        long end = arguments.number("end", Long.MAX_VALUE);
        return arguments.flag("unique")
            ? admin.queryMessageByUniqKey(null, topic(), key, most, begin, end)
            : admin.queryMessage(topic(), key, most, begin, end);
    }

    private String topic() {
        return arguments.text("topic");
    }

    private String group() {
        return arguments.text("group");
    }

    private MessageQueue queue() throws Exception {
        int queueId = arguments.integer("queue", 0);
        String broker = arguments.has("broker")
            ? arguments.text("broker")
            : admin.examineTopicRouteInfo(topic()).getQueueDatas().get(0).getBrokerName();
        return new MessageQueue(topic(), broker, queueId);
    }

    private String brokerAddr() throws Exception {
        if (arguments.has("broker-addr")) {
            return arguments.text("broker-addr");
        }
        Set<String> masters = new TreeSet<>();
        for (BrokerData broker : admin.examineBrokerClusterInfo().getBrokerAddrTable().values()) {
            masters.add(broker.getBrokerAddrs().get(MixAll.MASTER_ID));
        }
        if (masters.size() != 1) {
            throw new UsageException("--broker-addr is needed: the masters are " + masters);
        }
        return masters.iterator().next();
    }
}
