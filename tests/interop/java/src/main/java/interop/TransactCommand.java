package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * {@code transact --namesrv A --topic T --group G}: sends {@code --count} messages in transactions and says
 * {@code --say} commit, rollback, unknow or throw of each; when the broker asks it says {@code --check} (the same
 * words). It ends when {@code --checks} questions were answered, when it is told to stop, or after {@code --wait-s}.
 */
final class TransactCommand implements TransactionListener {
    private final TransactionMQProducer producer;
    private final String say;
    private final String check;
    private final List<Map<String, Object>> results = new ArrayList<>();
    private int answered;

    private TransactCommand(Arguments arguments) {
        producer = new TransactionMQProducer(arguments.text("group"));
        producer.setNamesrvAddr(arguments.text("namesrv"));
        producer.setTransactionListener(this);
        say = arguments.text("say", "commit");
        check = arguments.text("check", "commit");
    }

    static Map<String, Object> run(Arguments arguments, Stop stop) throws Exception {
        TransactCommand command = new TransactCommand(arguments);
        String topic = arguments.text("topic");
        int count = arguments.integer("count", 1);
        int checks = arguments.integer("checks", 0);
        long waitMillis = arguments.number("wait-s", 30) * 1000;
        Map<String, String> properties = arguments.pairs("property");
        arguments.refuseUnknown();
        command.producer.start();
        boolean complete;
        try {
            command.introduce(topic);
            for (int i = 0; i < count; i++) {
                Message message = new Message(topic, Messages.body(i, 32));
                properties.forEach(message::putUserProperty);
                command.send(i, message);
            }
            Output.event("sent", "count", command.results.size());
            complete = command.await(checks, stop, waitMillis);
        } finally {
            QuickShutdown.of(command.producer::shutdown);
        }
        return Output.fields("ok", complete, "results", command.results, "answered", command.answered);
    }

    /** A producer that sends nothing is known to the brokers of the topic all the same. */
    private void introduce(String topic) {
        MQClientInstance client = producer.getDefaultMQProducerImpl().getMqClientFactory();
        client.updateTopicRouteInfoFromNameServer(topic);
        client.sendHeartbeatToAllBrokerWithLock();
        Output.event("ready");
    }

    private void send(int index, Message message) throws Exception {
        TransactionSendResult result = producer.sendMessageInTransaction(message, null);
        results.add(Output.fields("index", index,
            "status", String.valueOf(result.getSendStatus()),
            "state", String.valueOf(result.getLocalTransactionState()),
            "msgId", result.getMsgId(),
            "transactionId", result.getTransactionId(),
            "queueId", result.getMessageQueue().getQueueId(),
            "queueOffset", result.getQueueOffset()));
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return state(say);
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        Map<String, Object> fields = Output.fields("transactionId", message.getTransactionId(),
            "checkTimes", message.getProperty(MessageConst.PROPERTY_TRANSACTION_CHECK_TIMES));
        fields.putAll(Messages.describe(message));
        Output.event("checked", fields);
        synchronized (this) {
            answered++;
            notifyAll();
        }
        return state(check);
    }

    private static LocalTransactionState state(String word) {
        return switch (word) {
            case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
            case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
            case "unknow" -> LocalTransactionState.UNKNOW;
            case "throw" -> throw new IllegalStateException("told to fail");
            default -> throw new IllegalArgumentException(word.toUpperCase(Locale.ROOT) + ": commit, rollback, unknow or throw");
        };
    }

    private synchronized boolean await(int checks, Stop stop, long timeoutMillis) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMillis);
        while (answered < checks && !stop.wasAsked() && System.nanoTime() < deadline) {
            wait(20);
        }
        return answered >= checks;
    }
}
