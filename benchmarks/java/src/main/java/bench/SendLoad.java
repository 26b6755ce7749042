package bench;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;

/** Threads that send and wait for the answer, single messages or batches, as fast as they are answered. */
final class SendLoad {
    private final Producers producers;
    private final Errors errors = new Errors();
    private final int batchSize;
    private Window window;

    private SendLoad(Producers producers, int batchSize) {
        this.producers = producers;
        this.batchSize = batchSize;
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

    private static Map<String, Object> run(Options options, int threads, int batchSize) throws Exception {
        SendLoad load = new SendLoad(new Producers(options), batchSize);
        load.window = Window.open(options);
        load.errors.within(load.window);
        List<Worker> workers = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            workers.add(load.new Worker("sender-" + i));
        }
        workers.forEach(Thread::start);
        load.window.announce();
        Histogram latencies = new Histogram();
        for (Worker worker : workers) {
            worker.join();
            latencies.merge(worker.latencies);
        }
        return Summary.of(latencies, batchSize, load.window, load.errors, Events.fields(
            "threads", threads, "batch", batchSize));
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
                DefaultMQProducer producer = producers.producer();
                SendResult result = batchSize == 1
                    ? producer.send(producers.message())
                    : producer.send(producers.batch(batchSize));
                return errors.isStored(result);
            } catch (Exception e) {
                errors.count(e);
                return false;
            }
        }
    }
}
