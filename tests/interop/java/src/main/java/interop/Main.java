package interop;

import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * Apache's Java client as a command: {@code Main COMMAND [--option value]...}.
 *
 * <p>Every command writes JSON objects, one a line, to standard output; the last has {@code "event":"result"} and says
 * {@code ok}. {@code shell} reads commands, one JSON array of strings a line, from standard input, and so saves the
 * start of a JVM per command. The exit code is 0 when a result was written (also for one that is not ok), 2 for a
 * command that is wrong in itself.
 */
public final class Main {
    private static final Map<String, Command> COMMANDS = Map.of(
        "send", SendCommand::run,
        "transact", TransactCommand::run,
        "consume", ConsumeCommand::run,
        "pull", PullCommand::run,
        "recall", RecallCommand::run,
        "request", RequestCommand::run,
        "reply", ReplyCommand::run,
        "scan", ScanCommand::run,
        "lookup", LookUpCommand::run,
        "admin", AdminCommand::run);

    private Main() {
    }

    public static void main(String[] words) throws IOException {
        Output.claimStandardOutput();
        boolean understood;
        if (words.length > 0 && words[0].equals("shell")) {
            understood = true;
            shell();
        } else {
            understood = execute(Arrays.asList(words), Stop.onStandardInput());
        }
        Output.flush();
        // Threads of clients that failed to start are not daemons: do not wait for them.
        Runtime.getRuntime().halt(understood ? 0 : 2);
    }

    private static void shell() throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Output.event("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            execute(JSON.parseArray(line, String.class), Stop.never());
        }
    }

    private static boolean execute(List<String> words, Stop stop) {
        try {
            if (!words.isEmpty() && words.get(0).equals("mqadmin")) {
                Output.result(MqAdminCommand.run(words.subList(1, words.size())));
                return true;
            }
            if (words.isEmpty() || !COMMANDS.containsKey(words.get(0))) {
                throw new UsageException("no such command: " + words + "; there are " + COMMANDS.keySet() + ", mqadmin and shell");
            }
            Arguments arguments = Arguments.parse(words.subList(1, words.size()));
            Output.result(COMMANDS.get(words.get(0)).run(arguments, stop));
            return true;
        } catch (UsageException e) {
            Output.usageError(e.getMessage());
            return false;
        } catch (Exception e) {
            Output.failure(e);
            return true;
        }
    }
}
