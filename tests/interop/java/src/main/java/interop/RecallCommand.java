package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** {@code recall --namesrv A --topic T --handle H...}: takes messages back that wait for their time. */
final class RecallCommand {
    private RecallCommand() {
    }

    static Map<String, Object> run(Arguments arguments, Stop stop) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(arguments.text("group", "interop-producer"));
        producer.setNamesrvAddr(arguments.text("namesrv"));
        String topic = arguments.text("topic");
        List<String> handles = arguments.all("handle");
        arguments.refuseUnknown();
        List<String> recalled = new ArrayList<>();
        producer.start();
        try {
            for (String handle : handles) {
                recalled.add(producer.recallMessage(topic, handle));
            }
        } finally {
            QuickShutdown.of(producer::shutdown);
        }
        return Output.fields("ok", true, "recalled", recalled);
    }
}
