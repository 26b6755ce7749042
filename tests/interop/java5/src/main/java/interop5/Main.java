package interop5;

import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Runs one scenario against a gRPC endpoint, and prints an event, one JSON object, a line:
 * {@code Main HOST:PORT SCENARIO TOPIC GROUP}.
 */
public final class Main {
    private static final Duration INVISIBLE = Duration.ofSeconds(15);
    private static final Duration HELD = Duration.ofSeconds(2);
    private static final long PATIENCE_MS = 40_000;

    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final ClientConfiguration configuration;
    private final PrintStream lines;
    private final String topic;
    private final String group;

    private Main(PrintStream lines, String endpoint, String topic, String group) {
        this.lines = lines;
        this.topic = topic;
        this.group = group;
        this.configuration = ClientConfiguration.newBuilder().setEndpoints(endpoint).enableSsl(false).build();
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream lines = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Main main = new Main(lines, arguments[0], arguments[2], arguments[3]);
        switch (arguments[1]) {
            case "normal" -> main.normal();
            case "fifo" -> main.fifo();
            case "retry" -> main.retry();
            case "delay" -> main.delay();
            case "transaction" -> main.transaction();
            default -> throw new IllegalArgumentException("unknown scenario " + arguments[1]);
        }
        main.print("result", Map.of("ok", true));
        System.exit(0);
    }

    /** Send, receive, acknowledge, change the invisible time, and receive again. */
    private void normal() throws Exception {
        try (Producer producer = producer(); SimpleConsumer consumer = simpleConsumer()) {
            for (String body : List.of("a", "b")) {
                Message message = message(body).setTag("T" + body).setKeys("key-" + body)
                    .addProperty("colour", "red").build();
                SendReceipt receipt = producer.send(message);
                print("sent", Map.of("body", body, "id", receipt.getMessageId().toString()));
            }
            for (MessageView view : receive(consumer, 2)) {
                if (text(view).equals("a")) {
                    consumer.ack(view);
                } else {
                    consumer.changeInvisibleDuration(view, Duration.ofSeconds(1));
                }
            }
            for (MessageView view : receive(consumer, 1)) {
                consumer.ack(view);
            }
        }
    }

    /** Three message groups in order, with a listener that refuses the first delivery. */
    private void fifo() throws Exception {
        AtomicInteger accepted = new AtomicInteger();
        AtomicInteger delivered = new AtomicInteger();
        try (Producer producer = producer();
            PushConsumer ignored = pushConsumer(view -> {
                boolean refuses = delivered.getAndIncrement() == 0;
                print("delivered", fields(view, "accepted", !refuses));
                if (!refuses) {
                    accepted.incrementAndGet();
                }
                return refuses ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            })) {
            for (int number = 0; number < 9; number++) {
                String name = "g" + number % 3;
                producer.send(message(name + ":" + number / 3).setMessageGroup(name).build());
            }
            await(accepted, 9);
        }
    }

    /** A push consumer whose listener refuses each message once. */
    private void retry() throws Exception {
        AtomicInteger accepted = new AtomicInteger();
        try (Producer producer = producer();
            PushConsumer ignored = pushConsumer(view -> {
                boolean refuses = view.getDeliveryAttempt() == 1;
                print("delivered", fields(view, "accepted", !refuses));
                if (!refuses) {
                    accepted.incrementAndGet();
                }
                return refuses ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            })) {
            for (String body : List.of("a", "b", "c")) {
                producer.send(message(body).build());
            }
            await(accepted, 3);
        }
    }

    /** A message that is due in two seconds. */
    private void delay() throws Exception {
        try (Producer producer = producer(); SimpleConsumer consumer = simpleConsumer()) {
            long due = System.currentTimeMillis() + 2000;
            SendReceipt recalled = producer.send(message("recalled").setDeliveryTimestamp(due).build());
            producer.send(message("kept").setDeliveryTimestamp(due).build());
            producer.recallMessage(topic, recalled.getRecallHandle());
            print("due", Map.of("at_ms", due));
            for (MessageView view : receive(consumer, 1)) {
                consumer.ack(view);
            }
        }
    }

    /** Transactions that are committed, rolled back, and left open for the checker, which commits. */
    private void transaction() throws Exception {
        try (Producer producer = producer(); SimpleConsumer consumer = simpleConsumer()) {
            for (String body : List.of("rolled back", "open", "committed")) {
                Transaction transaction = producer.beginTransaction();
                producer.send(message(body).build(), transaction);
                if (body.equals("committed")) {
                    transaction.commit();
                } else if (!body.equals("open")) {
                    transaction.rollback();
                }
            }
            for (MessageView view : receive(consumer, 2)) {
                consumer.ack(view);
            }
        }
    }

    private Producer producer() throws ClientException {
        return provider.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
            .setTransactionChecker(view -> {
                print("checked", Map.of("body", text(view)));
                return TransactionResolution.COMMIT;
            }).build();
    }

    private SimpleConsumer simpleConsumer() throws ClientException {
        return provider.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setAwaitDuration(HELD).setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).build();
    }

    private PushConsumer pushConsumer(org.apache.rocketmq.client.apis.consumer.MessageListener listener)
        throws ClientException {
        return provider.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).setMessageListener(listener)
            .build();
    }

    private MessageBuilder message(String body) {
        return provider.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private List<MessageView> receive(SimpleConsumer consumer, int count) throws ClientException {
        List<MessageView> received = new ArrayList<>();
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (received.size() < count && System.currentTimeMillis() < end) {
            for (MessageView view : consumer.receive(16, INVISIBLE)) {
                print("received", fields(view, "at_ms", System.currentTimeMillis()));
                received.add(view);
            }
        }
        return received;
    }

    private static void await(AtomicInteger counter, int count) throws InterruptedException {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (counter.get() < count && System.currentTimeMillis() < end) {
            Thread.sleep(20);
        }
    }

    private static String text(MessageView view) {
        ByteBuffer body = view.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static Map<String, Object> fields(MessageView view, String name, Object value) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("body", text(view));
        fields.put("id", view.getMessageId().toString());
        fields.put("tag", view.getTag().orElse(""));
        fields.put("keys", String.join(" ", view.getKeys()));
        fields.put("colour", view.getProperties().getOrDefault("colour", ""));
        fields.put("group", view.getMessageGroup().orElse(""));
        fields.put("attempt", view.getDeliveryAttempt());
        fields.put(name, value);
        return fields;
    }

    private synchronized void print(String event, Map<String, ?> fields) {
        StringBuilder line = new StringBuilder("{\"event\":\"" + event + "\"");
        fields.forEach((name, value) -> {
            boolean isText = value instanceof String;
            line.append(",\"").append(name).append("\":").append(isText ? "\"" + value + "\"" : value);
        });
        lines.println(line.append("}"));
    }
}
