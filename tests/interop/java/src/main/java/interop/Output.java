package interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

/** JSON lines on the process's standard output; what libraries print to System.out goes to standard error. */
final class Output {
    private static PrintStream lines;

    private Output() {
    }

    static void claimStandardOutput() {
        lines = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
    }

    static Map<String, Object> fields(Object... namesAndValues) {
        Map<String, Object> fields = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            fields.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return fields;
    }

    static void event(String name, Object... namesAndValues) {
        event(name, fields(namesAndValues));
    }

    static synchronized void event(String name, Map<String, Object> fields) {
        Map<String, Object> line = fields("event", name);
        line.putAll(fields);
        lines.print(JSON.toJSONString(line, JSONWriter.Feature.WriteMapNullValue) + "\n");
        lines.flush();
    }

    static void result(Map<String, Object> fields) {
        Map<String, Object> line = fields("ok", true);
        line.putAll(fields);
        event("result", line);
    }

    static void failure(Throwable error) {
        event("result", "ok", false, "error", error(error));
    }

    static void usageError(String message) {
        event("result", "ok", false, "usage", message);
    }

    static synchronized void flush() {
        lines.flush();
    }

    /** Class, broker's or client's code (null where there is none), remark, message and the causes of an error. */
    static Map<String, Object> error(Throwable error) {
        Map<String, Object> fields = errorWithoutCauses(error);
        List<Map<String, Object>> causes = new ArrayList<>();
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
            causes.add(errorWithoutCauses(cause));
        }
        fields.put("causes", causes);
        return fields;
    }

    private static Map<String, Object> errorWithoutCauses(Throwable error) {
        Integer code = null;
        String remark = null;
        if (error instanceof MQBrokerException refused) {
            code = refused.getResponseCode();
            remark = refused.getErrorMessage();
        } else if (error instanceof MQClientException refused) {
            code = refused.getResponseCode();
            remark = refused.getErrorMessage();
        }
        return fields("class", error.getClass().getSimpleName(), "code", code, "remark", remark,
            "message", error.getMessage());
    }
}
