package interop;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageExt;

/** Bodies that every language's program makes alike, and received messages as JSON fields. */
final class Messages {
    private static final String FILL = "abcdefghijklmnopqrstuvwxyz";
    private static final int LONGEST_SHOWN_BODY = 256;

    private Messages() {
    }

    /** Message {@code index} of {@code size} bytes: eight digits, a colon, and the alphabet over and over. */
    static byte[] body(int index, int size) {
        StringBuilder text = new StringBuilder(size + FILL.length()).append(String.format("%08d:", index));
        while (text.length() < size) {
            text.append(FILL);
        }
        return text.substring(0, size).getBytes(StandardCharsets.US_ASCII);
    }

    static String sha256(byte[] body) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }

    static Map<String, Object> describe(MessageExt message) {
        byte[] body = message.getBody();
        Map<String, Object> fields = Output.fields(
            "topic", message.getTopic(),
            "msgId", message.getMsgId(),
            "broker", message.getBrokerName(),
            "queueId", message.getQueueId(),
            "queueOffset", message.getQueueOffset(),
            "commitLogOffset", message.getCommitLogOffset(),
            "storeSize", message.getStoreSize(),
            "flag", message.getFlag(),
            "sysFlag", message.getSysFlag(),
            "bornTimestamp", message.getBornTimestamp(),
            "storeTimestamp", message.getStoreTimestamp(),
            "bornHost", String.valueOf(message.getBornHost()),
            "storeHost", String.valueOf(message.getStoreHost()),
            "reconsumeTimes", message.getReconsumeTimes(),
            "preparedTransactionOffset", message.getPreparedTransactionOffset(),
            "bodyCRC", message.getBodyCRC());
        fields.put("tags", message.getTags());
        fields.put("keys", message.getKeys());
        fields.put("properties", new TreeMap<>(message.getProperties()));
        fields.put("bodySize", body == null ? 0 : body.length);
        fields.put("bodySha256", body == null ? null : sha256(body));
        fields.put("body", body == null || body.length > LONGEST_SHOWN_BODY
            ? null : new String(body, StandardCharsets.UTF_8));
        return fields;
    }
}
