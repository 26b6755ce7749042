package interop;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** {@code mqadmin WORD...}: Apache's command-line tool inside this JVM; {@code text} is what it printed. */
final class MqAdminCommand {
    private MqAdminCommand() {
    }

    static Map<String, Object> run(List<String> words) {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        try (PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8)) {
            System.setOut(capture);
            System.setErr(capture);
            QuickShutdown.of(() -> MQAdminStartup.main0(words.toArray(String[]::new), null));
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return Output.fields("text", printed.toString(StandardCharsets.UTF_8));
    }
}
