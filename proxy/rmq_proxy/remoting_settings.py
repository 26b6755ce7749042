"""Settings of the port for clients of the remoting protocol: Apache RocketMQ 5.3.3's keys (ProxyConfig)."""

from __future__ import annotations

from rmq_remoting.daemon.settings import (
    Count,
    JavaBoolean,
    JavaString,
    Milliseconds,
    Natural,
    Port,
    SettingsGroup,
    setting,
)


class RemotingSettings(SettingsGroup):
    """Remoting"""

    enable_remoting_server: JavaBoolean = setting(
        True,
        "enableRemotingServer",
        "Serve clients of the remoting protocol, as Apache's proxy always does. false: gRPC alone.",
        ours=True,
    )
    remoting_listen_port: Port = setting(
        8080,
        "remotingListenPort",
        "Port for clients of the remoting protocol, which take it for a name server and for all brokers; "
        "0: any free port.",
    )
    remoting_access_addr: JavaString = setting(
        "",
        "remotingAccessAddr",
        "Host that routes name in place of the brokers' hosts, without a port. Empty: the address that the "
        "client connected to. Set it where clients reach the proxy by another address, such as a load "
        "balancer's.",
    )
    enable_remoting_local_proxy_grpc: JavaBoolean = setting(
        True,
        "enableRemotingLocalProxyGrpc",
        "Serve gRPC on the remoting port, too: connections that begin as HTTP/2 are passed on to the gRPC "
        "port. Not with tls.server.mode=enforcing and tls.server.need.client.auth=require.",
    )
    remoting_most_connections: Natural = setting(
        0,
        "maxConnections",
        "Most connections on the remoting port; 0: as many as the limit of open files allows.",
        unit="connections",
        ours=True,
    )
    remoting_most_connections_per_host: Natural = setting(
        0,
        "maxConnectionsPerHost",
        "Most connections of one IPv4 address or IPv6 network (/64) on the remoting port; 0: three quarters "
        "of the most of all.",
        unit="connections",
        ours=True,
    )
    remoting_most_broker_connections: Count = setting(
        20_000,
        "remotingBrokerConnectionsMaxNum",
        "Most connections to brokers for clients of the remoting port. Each client has one to each broker "
        "that it uses. Requests that need a further one are answered SYSTEM_BUSY.",
        unit="connections",
        ours=True,
    )
    remoting_send_capacity: Count = setting(
        10000,
        "remotingSendThreadPoolQueueCapacity",
        "Most sends, message returns, recalls and ends of transactions under way.",
    )
    remoting_pull_capacity: Count = setting(
        50000, "remotingPullThreadPoolQueueCapacity", "Most pulls and pops under way, held ones included."
    )
    remoting_heartbeat_capacity: Count = setting(
        50000, "remotingHeartbeatThreadPoolQueueCapacity", "Most heartbeats under way."
    )
    remoting_update_offset_capacity: Count = setting(
        10000,
        "remotingUpdateOffsetThreadPoolQueueCapacity",
        "Most commits of offsets, acknowledgements, changes of invisible times and lists of connections "
        "under way.",
    )
    remoting_topic_route_capacity: Count = setting(
        50000, "remotingTopicRouteThreadPoolQueueCapacity", "Most route requests under way."
    )
    remoting_default_capacity: Count = setting(
        50000, "remotingDefaultThreadPoolQueueCapacity", "Most other requests under way."
    )
    remoting_send_wait_ms: Milliseconds = setting(
        3000,
        "remotingWaitTimeMillsInSendQueue",
        "Time after which a send that waits for its turn is refused with SYSTEM_BUSY.",
    )
    remoting_pull_wait_ms: Milliseconds = setting(
        5000, "remotingWaitTimeMillsInPullQueue", "The same for pulls and pops."
    )
    remoting_heartbeat_wait_ms: Milliseconds = setting(
        31000, "remotingWaitTimeMillsInHeartbeatQueue", "The same for heartbeats."
    )
    remoting_update_offset_wait_ms: Milliseconds = setting(
        3000, "remotingWaitTimeMillsInUpdateOffsetQueue", "The same for commits of offsets."
    )
    remoting_topic_route_wait_ms: Milliseconds = setting(
        3000, "remotingWaitTimeMillsInTopicRouteQueue", "The same for route requests."
    )
    remoting_default_wait_ms: Milliseconds = setting(
        3000, "remotingWaitTimeMillsInDefaultQueue", "The same for other requests."
    )
