package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * {@code send --namesrv A --topic T}: sends {@code --count} messages in {@code --mode} sync, async, oneway, batch
 * ({@code --batch} a time), queue ({@code --queue}), selector (round robin) or orderkey (three keys, by hash).
 */
final class SendCommand {
    private static final int ORDER_KEYS = 3;

    private final Arguments arguments;
    private final String topic;
    private final DefaultMQProducer producer;
    private final List<Map<String, Object>> results = new ArrayList<>();
    private final List<Map<String, Object>> errors = new ArrayList<>();

    private SendCommand(Arguments arguments) {
        this.arguments = arguments;
        this.topic = arguments.text("topic");
        this.producer = producer(arguments);
    }

    static Map<String, Object> run(Arguments arguments, Stop stop) throws Exception {
        SendCommand command = new SendCommand(arguments);
        String mode = arguments.text("mode", "sync");
        List<Message> messages = command.messages();
        int batch = arguments.integer("batch", 16);
        int queue = arguments.integer("queue", 0);
        boolean hold = arguments.flag("hold");
        long holdMillis = arguments.number("hold-ms", 60_000);
        arguments.refuseUnknown();
        command.producer.start();
        try {
            command.send(mode, messages, batch, queue);
            if (hold) {
                Output.event("sent", "count", command.results.size(), "errors", command.errors);
                stop.await(holdMillis);
            }
        } finally {
            QuickShutdown.of(command.producer::shutdown);
        }
        return Output.fields("ok", command.errors.isEmpty(), "mode", mode, "count", messages.size(),
            "results", command.results, "errors", command.errors);
    }

    private static DefaultMQProducer producer(Arguments arguments) {
        DefaultMQProducer producer = new DefaultMQProducer(arguments.text("group", "interop-producer"), Keys.hook());
        producer.setNamesrvAddr(arguments.text("namesrv"));
        producer.setSendMsgTimeout(arguments.integer("timeout-ms", producer.getSendMsgTimeout()));
        int retries = arguments.integer("retries", producer.getRetryTimesWhenSendFailed());
        producer.setRetryTimesWhenSendFailed(retries);
        producer.setRetryTimesWhenSendAsyncFailed(retries);
        producer.setMaxMessageSize(arguments.integer("max-message-size", producer.getMaxMessageSize()));
        producer.setCompressMsgBodyOverHowmuch(
            arguments.integer("compress-over", producer.getCompressMsgBodyOverHowmuch()));
        producer.setSendMessageWithVIPChannel(arguments.flag("vip"));
        producer.setAutoBatch(arguments.flag("auto-batch"));
        producer.setEnableTrace(arguments.flag("trace"));
        if (arguments.has("namespace")) {
            producer.setNamespace(arguments.text("namespace"));
        }
        if (arguments.has("compress")) {
            producer.setCompressType(CompressionType.valueOf(arguments.text("compress").toUpperCase(Locale.ROOT)));
        }
        return producer;
    }

    private List<Message> messages() {
        int count = arguments.integer("count", 1);
        int size = arguments.integer("size", 32);
        String body = arguments.text("body", null);
        String tag = arguments.text("tag", null);
        String keys = arguments.text("keys", null);
        Map<String, String> properties = arguments.pairs("property");
        int delayLevel = arguments.integer("delay-level", 0);
        long deliverAfterMillis = arguments.number("deliver-after-ms", 0);
        long delayMillis = arguments.number("delay-ms", 0);
        long delaySeconds = arguments.number("delay-s", 0);
        List<Message> messages = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic,
                body == null ? Messages.body(i, size) : body.getBytes(StandardCharsets.UTF_8));
            if (tag != null) {
                message.setTags(tag);
            }
            if (keys != null) {
                message.setKeys(keys.replace("{}", Integer.toString(i)));
            }
            properties.forEach(message::putUserProperty);
            if (delayLevel > 0) {
                message.setDelayTimeLevel(delayLevel);
            }
            if (deliverAfterMillis > 0) {
                message.setDeliverTimeMs(System.currentTimeMillis() + deliverAfterMillis);
            }
            if (delayMillis > 0) {
                message.setDelayTimeMs(delayMillis);
            }
            if (delaySeconds > 0) {
                message.setDelayTimeSec(delaySeconds);
            }
            messages.add(message);
        }
        return messages;
    }

    private void send(String mode, List<Message> messages, int batch, int queue) throws Exception {
        switch (mode) {
            case "sync" -> each(messages, (index, message) -> producer.send(message));
            case "async" -> async(messages);
            case "oneway" -> each(messages, (index, message) -> {
                producer.sendOneway(message);
                return null;
            });
            case "batch" -> batches(messages, batch);
            case "queue" -> each(messages, (index, message) -> producer.send(message, queue(queue)));
            case "selector" -> each(messages, (index, message) ->
                producer.send(message, (queues, sent, argument) -> queues.get((int) argument % queues.size()), index));
            case "orderkey" -> each(messages, (index, message) ->
                producer.send(message, new SelectMessageQueueByHash(), "order-" + index % ORDER_KEYS));
            default -> throw new UsageException("--mode " + mode + ": sync, async, oneway, batch, queue, selector or orderkey");
        }
    }

    private MessageQueue queue(int queueId) throws Exception {
        return producer.fetchPublishMessageQueues(topic).stream()
            .filter(queue -> queue.getQueueId() == queueId).findFirst()
            // A queue that the route does not know is worth sending to: the broker has to refuse it.
            .orElseGet(() -> new MessageQueue(topic, brokerName(), queueId));
    }

    private String brokerName() {
        try {
            return producer.fetchPublishMessageQueues(topic).get(0).getBrokerName();
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    @FunctionalInterface
    private interface Sender {
        SendResult send(int index, Message message) throws Exception;
    }

    private void each(List<Message> messages, Sender sender) {
        for (int i = 0; i < messages.size(); i++) {
            try {
                succeeded(i, 1, sender.send(i, messages.get(i)));
            } catch (Exception e) {
                failed(i, e);
            }
        }
    }

    private void batches(List<Message> messages, int size) {
        for (int from = 0; from < messages.size(); from += size) {
            List<Message> batch = messages.subList(from, Math.min(from + size, messages.size()));
            try {
                succeeded(from, batch.size(), producer.send(batch));
            } catch (Exception e) {
                failed(from, e);
            }
        }
    }

    private void async(List<Message> messages) throws InterruptedException {
        CountDownLatch open = new CountDownLatch(messages.size());
        for (int i = 0; i < messages.size(); i++) {
            int index = i;
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    succeeded(index, 1, result);
                    open.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    failed(index, error);
                    open.countDown();
                }
            };
            try {
                producer.send(messages.get(i), callback);
            } catch (Exception e) {
                callback.onException(e);
            }
        }
        if (!open.await(60, TimeUnit.SECONDS)) {
            failed(-1, new IllegalStateException(open.getCount() + " asynchronous sends were never answered"));
        }
    }

    private synchronized void succeeded(int index, int count, SendResult result) {
        if (result == null) {
            results.add(Output.fields("index", index, "count", count, "status", "ONEWAY"));
            return;
        }
        Map<String, Object> fields = Output.fields("index", index, "count", count,
            "status", String.valueOf(result.getSendStatus()),
            "msgId", result.getMsgId(),
            "offsetMsgId", result.getOffsetMsgId(),
            "broker", result.getMessageQueue().getBrokerName(),
            "queueId", result.getMessageQueue().getQueueId(),
            "queueOffset", result.getQueueOffset());
        fields.put("transactionId", result.getTransactionId());
        fields.put("regionId", result.getRegionId());
        fields.put("traceOn", result.isTraceOn());
        fields.put("recallHandle", result.getRecallHandle());
        results.add(fields);
    }

    private synchronized void failed(int index, Throwable error) {
        Map<String, Object> fields = Output.fields("index", index);
        fields.putAll(Output.error(error));
        errors.add(fields);
    }
}
