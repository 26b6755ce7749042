package interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Tells a running command to come to its end early: the line {@code stop} on standard input. */
final class Stop {
    private final CountDownLatch asked = new CountDownLatch(1);

    private Stop() {
    }

    static Stop never() {
        return new Stop();
    }

    static Stop onStandardInput() {
        Stop stop = new Stop();
        Thread reader = new Thread(stop::readLines, "stop-reader");
        reader.setDaemon(true);
        reader.start();
        return stop;
    }

    boolean wasAsked() {
        return asked.getCount() == 0;
    }

    /** Waits at most so long; true when the stop was asked for. */
    boolean await(long timeoutMillis) throws InterruptedException {
        return asked.await(timeoutMillis, TimeUnit.MILLISECONDS);
    }

    private void readLines() {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                if (line.equals("stop")) {
                    asked.countDown();
                }
            }
        } catch (IOException e) {
            System.err.println("standard input cannot be read, so 'stop' will not be heard: " + e);
        }
    }
}
