package interop;

import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * {@code reply --namesrv A --topic T --group G}: replies to every message with {@code "re: "} and its body, until it
 * is told to stop. Events: started, replied.
 */
final class ReplyCommand {
    private final DefaultMQProducer producer;
    private final DefaultMQPushConsumer consumer;

    private ReplyCommand(Arguments arguments) throws Exception {
        String group = arguments.text("group");
        producer = new DefaultMQProducer(group + "-replies");
        producer.setNamesrvAddr(arguments.text("namesrv"));
        consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> reply(messages));
    }

    static Map<String, Object> run(Arguments arguments, Stop stop) throws Exception {
        ReplyCommand command = new ReplyCommand(arguments);
        long waitMillis = arguments.number("wait-s", 60) * 1000;
        arguments.refuseUnknown();
        command.producer.start();
        command.consumer.start();
        try {
            Output.event("started");
            stop.await(waitMillis);
        } finally {
            QuickShutdown.of(command.consumer::shutdown);
            QuickShutdown.of(command.producer::shutdown);
        }
        return Output.fields("stopped", stop.wasAsked());
    }

    private ConsumeConcurrentlyStatus reply(List<MessageExt> messages) {
        for (MessageExt message : messages) {
            try {
                byte[] body = RequestCommand.bytes("re: " + RequestCommand.text(message.getBody()));
                producer.send(MessageUtil.createReplyMessage(message, body), 3000);
                Output.event("replied", Messages.describe(message));
            } catch (Exception e) {
                Output.event("failed", Output.error(e));
            }
        }
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    }
}
