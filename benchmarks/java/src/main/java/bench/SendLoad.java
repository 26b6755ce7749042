package bench;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Threads that send and wait for the answer, single messages, batches or messages in transactions that are committed
 * at once, as fast as they are answered.
 */
final class SendLoad {
    @FunctionalInterface
    private interface Sender {
        SendResult send() throws Exception;
    }

    private final Sender sender;
    private final Errors errors = new Errors();
    private Window window;

    private SendLoad(Sender sender) {
        this.sender = sender;
    }

    /** {@code sync --threads 64 --size 128 --seconds 10 --warmupSeconds 5}. */
    static Map<String, Object> sync(Options options) throws Exception {
        return run(options, options.number("threads", 64), 1);
    }

    static Map<String, Object> oneThread(Options options) throws Exception {
        return run(options, 1, 1);
    }

    /** {@code batch --threads 8 --batch 32}. */
    static Map<String, Object> batch(Options options) throws Exception {
        return run(options, options.number("threads", 8), options.number("batch", 32));
    }

    /** {@code transactions --threads 32}: each is committed as soon as the broker has its message. */
    static Map<String, Object> transactions(Options options) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("bench-transactions");
        producer.setTransactionListener(new CommitAtOnce());
        Producers producers = new Producers(options, producer);
        SendLoad load = new SendLoad(() -> producer.sendMessageInTransaction(producers.message(), null));
        return load.measure(options, options.number("threads", 32), 1);
    }

    private static Map<String, Object> run(Options options, int threads, int batchSize) throws Exception {
        Producers producers = new Producers(options);
        DefaultMQProducer producer = producers.producer();
        SendLoad load = new SendLoad(batchSize == 1
            ? () -> producer.send(producers.message())
            : () -> producer.send(producers.batch(batchSize)));
        return load.measure(options, threads, batchSize);
    }

    private Map<String, Object> measure(Options options, int threads, int batchSize) throws Exception {
        window = Window.open(options);
        errors.within(window);
        List<Worker> workers = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            workers.add(new Worker("sender-" + i));
        }
        workers.forEach(Thread::start);
        window.announce();
        Histogram latencies = new Histogram();
        for (Worker worker : workers) {
            worker.join();
            latencies.merge(worker.latencies);
        }
        return Summary.of(latencies, batchSize, window, errors, Events.fields(
            "threads", threads, "batch", batchSize));
    }

    private static final class CommitAtOnce implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }

    private final class Worker extends Thread {
        private final Histogram latencies = new Histogram();

        Worker(String name) {
            super(name);
        }

        @Override
        public void run() {
            while (!window.isOver()) {
                long start = System.nanoTime();
                boolean stored = send();
                long end = System.nanoTime();
                if (stored && window.holds(end)) {
                    latencies.record(end - start);
                }
            }
        }

        private boolean send() {
            try {
                return errors.isStored(sender.send());
            } catch (Exception e) {
                errors.count(e);
                return false;
            }
        }
    }
}
