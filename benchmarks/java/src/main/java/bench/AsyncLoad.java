package bench;

import java.util.Map;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;

/** {@code async --inflight 2000}: one thread sends; at most so many messages wait for their answer. */
final class AsyncLoad {
    private final Producers producers;
    private final Errors errors = new Errors();
    private final Histogram latencies = new Histogram();
    private final Semaphore free;
    private Window window;

    private AsyncLoad(Producers producers, int inflight) {
        this.producers = producers;
        this.free = new Semaphore(inflight);
    }

    static Map<String, Object> run(Options options) throws Exception {
        int inflight = options.number("inflight", 2000);
        AsyncLoad load = new AsyncLoad(new Producers(options), inflight);
        load.window = Window.open(options);
        load.errors.within(load.window);
        Thread sender = new Thread(load::send, "sender");
        sender.start();
        load.window.announce();
        sender.join();
        load.free.acquire(inflight);
        return Summary.of(load.latencies, 1, load.window, load.errors, Events.fields("inflight", inflight));
    }

    private void send() {
        while (!window.isOver()) {
            free.acquireUninterruptibly();
            Answer answer = new Answer();
            try {
                producers.producer().send(producers.message(), answer);
            } catch (Exception e) {
                answer.onException(e);
            }
        }
    }

    private final class Answer implements SendCallback {
        private final long start = System.nanoTime();

        @Override
        public void onSuccess(SendResult result) {
            long end = System.nanoTime();
            if (errors.isStored(result) && window.holds(end)) {
                synchronized (latencies) {
                    latencies.record(end - start);
                }
            }
            free.release();
        }

        @Override
        public void onException(Throwable error) {
            errors.count(error);
            free.release();
        }
    }
}
