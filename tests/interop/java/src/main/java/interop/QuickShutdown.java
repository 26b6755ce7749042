package interop;

import java.util.Arrays;

/**
 * Shuts a client down without the three seconds that it often takes: NettyRemotingClient of 5.3.3 waits for its
 * event thread, which looks up from an empty queue only that often unless it is interrupted.
 */
final class QuickShutdown {
    private static final String EVENT_THREAD = "NettyEventExecutor";
    private static final long POLITE_MILLIS = 50;

    private QuickShutdown() {
    }

    static void of(Runnable shutdown) {
        Thread waker = new Thread(QuickShutdown::interruptEventThreads, "shutdown-waker");
        waker.setDaemon(true);
        waker.start();
        try {
            shutdown.run();
        } finally {
            waker.interrupt();
        }
    }

    private static void interruptEventThreads() {
        try {
            while (true) {
                Thread.sleep(POLITE_MILLIS);
                Thread.getAllStackTraces().forEach((thread, stack) -> {
                    if (thread.getName().startsWith(EVENT_THREAD) && waitsForEvents(stack)) {
                        thread.interrupt();
                    }
                });
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static boolean waitsForEvents(StackTraceElement[] stack) {
        return Arrays.stream(stack).anyMatch(
            frame -> frame.getClassName().endsWith("LinkedBlockingQueue") && frame.getMethodName().equals("poll"));
    }
}
