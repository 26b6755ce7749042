package interop;

import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** The access keys of all clients: the system properties {@code interop.accessKey} and {@code interop.secretKey}. */
final class Keys {
    private Keys() {
    }

    /** Signs every request; null without keys. */
    static RPCHook hook() {
        String accessKey = System.getProperty("interop.accessKey");
        return accessKey == null
            ? null
            : new AclClientRPCHook(new SessionCredentials(accessKey, System.getProperty("interop.secretKey")));
    }
}
