package bench;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.topic.TopicValidator;

/** The one producer that all threads share, its topic and its messages. */
final class Producers {
    private static final long ROUTE_TIMEOUT_MILLIS = 15_000;

    private final DefaultMQProducer producer;
    private final List<String> topics;
    private final AtomicInteger turn = new AtomicInteger();
    private final AtomicInteger number = new AtomicInteger();
    private final byte[] body;
    private final int kinds;

    /**
     * Reads {@code --namesrv --topic --topics --queues --size --kinds}; makes the topic where there is none. With
     * {@code --topics 3} there are three that take turns: the topic's name with -0, -1 and -2. With
     * {@code --kinds 100} a hundredth of the batches' messages has tag {@code kind0} and property {@code kind=0}, and
     * so on.
     */
    Producers(Options options) throws Exception {
        this(options, new DefaultMQProducer("bench-producer"));
    }

    /** The same with a producer that has not been started. */
    Producers(Options options, DefaultMQProducer producer) throws Exception {
        topics = names(options.text("topic"), options.number("topics", 0));
        int queues = options.number("queues", 8);
        kinds = options.number("kinds", 0);
        body = new byte[options.number("size", 128)];
        Arrays.fill(body, (byte) 'x');
        this.producer = producer;
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        Clients.add(producer::shutdown);
        producer.start();
        for (String topic : topics) {
            ensureTopic(topic, queues);
        }
    }

    private static List<String> names(String topic, int count) {
        return count == 0 ? List.of(topic) : IntStream.range(0, count).mapToObj(i -> topic + "-" + i).toList();
    }

    DefaultMQProducer producer() {
        return producer;
    }

    Message message() {
        return new Message(topic(), body);
    }

    /** A message whose body begins with these bytes. */
    Message message(byte[] beginning) {
        byte[] own = body.clone();
        System.arraycopy(beginning, 0, own, 0, beginning.length);
        return new Message(topic(), own);
    }

    List<Message> batch(int size) {
        String topic = topic();
        List<Message> batch = new ArrayList<>(size);
        for (int i = 0; i < size; i++) {
            Message message = new Message(topic, body);
            if (kinds > 0) {
                int kind = Math.floorMod(number.getAndIncrement(), kinds);
                message.setTags("kind" + kind);
                message.putUserProperty("kind", String.valueOf(kind));
            }
            batch.add(message);
        }
        return batch;
    }

    private String topic() {
        return topics.size() == 1
            ? topics.get(0)
            : topics.get(Math.floorMod(turn.getAndIncrement(), topics.size()));
    }

    private void ensureTopic(String topic, int queues) throws Exception {
        if (queuesInRoute(topic) == queues) {
            return;
        }
        producer.createTopic(TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC, topic, queues, null);
        long deadline = System.nanoTime() + ROUTE_TIMEOUT_MILLIS * 1_000_000;
        while (queuesInRoute(topic) != queues) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("topic " + topic + " has no route with " + queues + " queues");
            }
            Thread.sleep(50);
        }
    }

    private int queuesInRoute(String topic) {
        try {
            return producer.fetchPublishMessageQueues(topic).size();
        } catch (MQClientException e) {
            return 0;
        }
    }
}
