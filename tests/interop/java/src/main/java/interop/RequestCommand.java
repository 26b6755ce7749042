package interop;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.common.message.Message;

/**
 * {@code request --namesrv A --topic T --body B}: asks, and waits for the reply.
 *
 * <p>By the one way that works in 5.3.3: where no queue is chosen, and where no callback is given, the client takes the
 * answer to the request's sending for the end of the waiting (RequestResponseFuture.acquireCountDownLatch).
 */
final class RequestCommand {
    // Requests whose time is over are looked for once a second.
    private static final long GRACE_SECONDS = 30;

    private RequestCommand() {
    }

    static Map<String, Object> run(Arguments arguments, Stop stop) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(arguments.text("group", "interop-requester"));
        producer.setNamesrvAddr(arguments.text("namesrv"));
        Message request = new Message(arguments.text("topic"), bytes(arguments.text("body")));
        long timeoutMillis = arguments.number("timeout-ms", 10_000);
        arguments.refuseUnknown();
        producer.start();
        try {
            CompletableFuture<Message> replied = new CompletableFuture<>();
            producer.request(request, (queues, message, argument) -> queues.get(0), null, new RequestCallback() {
                @Override
                public void onSuccess(Message reply) {
                    replied.complete(reply);
                }

                @Override
                public void onException(Throwable error) {
                    replied.completeExceptionally(error);
                }
            }, timeoutMillis);
            Message reply = reply(replied);
            return Output.fields("topic", reply.getTopic(), "body", text(reply.getBody()),
                "properties", reply.getProperties());
        } finally {
            QuickShutdown.of(producer::shutdown);
        }
    }

    private static Message reply(CompletableFuture<Message> replied) throws Exception {
        try {
            return replied.get(GRACE_SECONDS, TimeUnit.SECONDS);
        } catch (ExecutionException e) {
            throw e.getCause() instanceof Exception error ? error : e;
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] body) {
        return new String(body, StandardCharsets.UTF_8);
    }
}
