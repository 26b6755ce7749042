package interop;

import java.util.Map;

/** One sub-command: the fields of its result line ({@code ok} is added unless it is there). */
@FunctionalInterface
interface Command {
    Map<String, Object> run(Arguments arguments, Stop stop) throws Exception;
}
