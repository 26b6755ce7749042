package interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * {@code lookup --namesrv A --cluster C}: messages by {@code --key {"topic":..,"key":..,"unique":..,"begin":..,
 * "end":..,"max":..}} and by {@code --view OFFSET}, the place in the log of the broker at {@code --broker-addr} (its
 * messages' own ids may name another address). Both may be given again and again.
 */
final class LookUpCommand {
    private static final long TIMEOUT_MILLIS = 5000;
    private static final int MOST = 64;

    private final DefaultMQAdminExt admin;
    private final String cluster;

    private LookUpCommand(DefaultMQAdminExt admin, String cluster) {
        this.admin = admin;
        this.cluster = cluster;
    }

    static Map<String, Object> run(Arguments arguments, Stop stop) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(TIMEOUT_MILLIS);
        admin.setNamesrvAddr(arguments.text("namesrv"));
        LookUpCommand command = new LookUpCommand(admin, arguments.text("cluster", "DefaultCluster"));
        List<String> keys = arguments.all("key");
        List<String> views = arguments.all("view");
        String broker = arguments.text("broker-addr");
        arguments.refuseUnknown();
        admin.start();
        try {
            List<List<Long>> found = new ArrayList<>();
            for (String key : keys) {
                found.add(command.byKey(JSON.parseObject(key)));
            }
            List<Map<String, Object>> viewed = new ArrayList<>();
            for (String offset : views) {
                viewed.add(command.byOffset(broker, Long.parseLong(offset)));
            }
            return Output.fields("keys", found, "views", viewed);
        } finally {
            QuickShutdown.of(admin::shutdown);
        }
    }

    /** The places in the log, in the order of the answer. */
    private List<Long> byKey(JSONObject wanted) throws Exception {
        String topic = wanted.getString("topic");
        String key = wanted.getString("key");
        int max = wanted.getIntValue("max", MOST);
        long begin = wanted.getLongValue("begin", 0);
        long end = wanted.getLongValue("end", Long.MAX_VALUE);
        try {
            QueryResult result = wanted.getBooleanValue("unique")
                ? admin.queryMessageByUniqKey(cluster, topic, key, max, begin, end)
                : admin.queryMessage(cluster, topic, key, max, begin, end);
            return result.getMessageList().stream().map(MessageExt::getCommitLogOffset).toList();
        } catch (MQClientException e) {
            if (e.getResponseCode() == ResponseCode.NO_MESSAGE) {
                return List.of();
            }
            throw e;
        }
    }

    private Map<String, Object> byOffset(String broker, long offset) throws Exception {
        int colon = broker.lastIndexOf(':');
        InetSocketAddress address =
            new InetSocketAddress(broker.substring(0, colon), Integer.parseInt(broker.substring(colon + 1)));
        // The topic is only for clients that keep several namespaces apart.
        return Messages.describe(admin.viewMessage("", MessageDecoder.createMessageId(address, offset)));
    }
}
