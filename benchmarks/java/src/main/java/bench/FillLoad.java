package bench;

import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;

/** {@code fill --count 2000000 --batch 64}: puts exactly so many messages into the topic, as fast as it can. */
final class FillLoad {
    private static final int REFUSED_PAUSE_MILLIS = 10;

    private final Producers producers;
    private final Errors errors = new Errors();
    private final AtomicLong left;
    private final int batchSize;
    private final Semaphore free;

    private FillLoad(Producers producers, long count, int batchSize, int inflight) {
        this.producers = producers;
        this.left = new AtomicLong(count);
        this.batchSize = batchSize;
        this.free = new Semaphore(inflight);
    }

    static Map<String, Object> run(Options options) throws Exception {
        int count = options.number("count", 2_000_000);
        int batchSize = options.number("batch", 64);
        int inflight = options.number("inflight", 32);
        FillLoad load = new FillLoad(new Producers(options), count, batchSize, inflight);
        options.refuseUnknown();
        Events.emit("measuring");
        long start = System.nanoTime();
        load.send(inflight);
        double seconds = (System.nanoTime() - start) / 1e9;
        Events.emit("measured");
        return Events.fields("count", count, "batch", batchSize, "seconds", seconds,
            "messagesPerSecond", count / seconds, "errors", load.errors.total(),
            "errorKinds", load.errors.byKind());
    }

    /** What is refused goes back to what is left, so all batches in flight have to end before all is known. */
    private void send(int inflight) throws Exception {
        while (left.get() > 0) {
            while (true) {
                free.acquire();
                int size = (int) Math.min(batchSize, left.get());
                if (size <= 0) {
                    free.release();
                    break;
                }
                left.addAndGet(-size);
                send(new Answer(size));
            }
            free.acquire(inflight);
            free.release(inflight);
        }
    }

    private void send(Answer answer) {
        try {
            producers.producer().send(producers.batch(answer.size), answer);
        } catch (Exception e) {
            answer.onException(e);
        }
    }

    private final class Answer implements SendCallback {
        private final int size;

        Answer(int size) {
            this.size = size;
        }

        @Override
        public void onSuccess(SendResult result) {
            // Stored on this broker, whatever its disk or its replica say: to send it again would make it two.
            errors.isStored(result);
            free.release();
        }

        @Override
        public void onException(Throwable error) {
            errors.count(error);
            left.addAndGet(size);
            try {
                Thread.sleep(REFUSED_PAUSE_MILLIS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            free.release();
        }
    }
}
