package bench;

import java.util.ArrayDeque;
import java.util.Deque;

/** The producers and consumers of one load. They are shut down before the next load of the same process. */
final class Clients {
    private static final Deque<Runnable> SHUTDOWNS = new ArrayDeque<>();

    private Clients() {
    }

    /** Register the shutdown of a client that is about to start. */
    static synchronized void add(Runnable shutdown) {
        SHUTDOWNS.push(shutdown);
    }

    /** Shut all registered clients down, the newest first. */
    static synchronized void shutdown() {
        while (!SHUTDOWNS.isEmpty()) {
            SHUTDOWNS.pop().run();
        }
    }
}
