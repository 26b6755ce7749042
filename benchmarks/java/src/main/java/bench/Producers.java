package bench;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.topic.TopicValidator;

/** The one producer that all threads share, its topic and its messages. */
final class Producers {
    private static final long ROUTE_TIMEOUT_MILLIS = 15_000;

    private final DefaultMQProducer producer;
    private final String topic;
    private final byte[] body;

    /** Reads {@code --namesrv --topic --queues --size}; makes the topic where there is none. */
    Producers(Options options) throws Exception {
        topic = options.text("topic");
        int queues = options.number("queues", 8);
        body = new byte[options.number("size", 128)];
        Arrays.fill(body, (byte) 'x');
        producer = new DefaultMQProducer("bench-producer");
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        ensureTopic(queues);
    }

    DefaultMQProducer producer() {
        return producer;
    }

    Message message() {
        return new Message(topic, body);
    }

    List<Message> batch(int size) {
        List<Message> batch = new ArrayList<>(size);
        for (int i = 0; i < size; i++) {
            batch.add(message());
        }
        return batch;
    }

    private void ensureTopic(int queues) throws Exception {
        if (queuesInRoute() == queues) {
            return;
        }
        producer.createTopic(TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC, topic, queues, null);
        long deadline = System.nanoTime() + ROUTE_TIMEOUT_MILLIS * 1_000_000;
        while (queuesInRoute() != queues) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("topic " + topic + " has no route with " + queues + " queues");
            }
            Thread.sleep(50);
        }
    }

    private int queuesInRoute() {
        try {
            return producer.fetchPublishMessageQueues(topic).size();
        } catch (MQClientException e) {
            return 0;
        }
    }
}
