package bench;

import java.lang.management.ManagementFactory;

/** The time in which things count: after the warm-up, for so many seconds. */
final class Window {
    private final int seconds;
    private final long from;
    private final long to;
    private long cpuNanos;

    private Window(int warmupSeconds, int seconds) {
        this.seconds = seconds;
        from = System.nanoTime() + warmupSeconds * 1_000_000_000L;
        to = from + seconds * 1_000_000_000L;
    }

    /** Reads {@code --warmupSeconds} and {@code --seconds}; the time runs from here on. */
    static Window open(Options options) {
        int warmupSeconds = options.number("warmupSeconds", 5);
        int seconds = options.number("seconds", 10);
        options.refuseUnknown();
        return new Window(warmupSeconds, seconds);
    }

    /** Whether something that ended at this System.nanoTime() counts. */
    boolean holds(long nanos) {
        return nanos - from >= 0 && nanos - to < 0;
    }

    boolean isOver() {
        return System.nanoTime() - to >= 0;
    }

    /** Tells the outside when it begins and ends; returns when it is over. */
    void announce() throws InterruptedException {
        sleepUntil(from);
        long before = processCpuNanos();
        Events.emit("measuring");
        sleepUntil(to);
        Events.emit("measured");
        cpuNanos = processCpuNanos() - before;
    }

    int seconds() {
        return seconds;
    }

    /** CPU that this client used in it. */
    long cpuNanos() {
        return cpuNanos;
    }

    private static void sleepUntil(long nanos) throws InterruptedException {
        long left = nanos - System.nanoTime();
        if (left > 0) {
            Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
        }
    }

    private static long processCpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }
}
