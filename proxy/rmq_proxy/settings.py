"""The proxy's settings: keys and defaults of Apache RocketMQ 5.3.3 (ProxyConfig, its rmq-proxy.json).

`ProxySettings` is what the gRPC face needs; a broker has it beside its own settings in LOCAL mode.
"""

from __future__ import annotations

import socket
from typing import Final

from rmq_remoting.daemon.settings import (
    ByteCount,
    Count,
    JavaBoolean,
    JavaInt,
    JavaLong,
    JavaString,
    Milliseconds,
    MillisecondsOrZero,
    Natural,
    Port,
    Seconds,
    SettingsGroup,
    setting,
)

from .access_settings import ProxyAccessSettings
from .tls_settings import ProxyTlsSettings

_SECOND_MS: Final = 1000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS
_LONG: Final = "0 or less: no limit."


class FaceSettings(SettingsGroup):
    """gRPC"""

    grpc_server_port: Port = setting(
        8081, "grpcServerPort", "Port that the 5.x clients connect to; 0: any free port."
    )
    grpc_max_inbound_message_size: ByteCount = setting(
        130 * 1024 * 1024, "grpcMaxInboundMessageSize", "Largest request of a client."
    )
    grpc_client_idle_time_ms: Milliseconds = setting(
        120 * _SECOND_MS, "grpcClientIdleTimeMills", "Time without a call after which a connection is closed."
    )
    most_connections: Natural = setting(
        0,
        "grpcConnectionsMaxNum",
        "Most connections of gRPC clients; further ones are closed at once. 0: three quarters of the files "
        "that the process may open, or a quarter where one port serves plain text and TLS.",
        unit="connections",
        ours=True,
    )
    local_proxy_connect_timeout_ms: Milliseconds = setting(
        3 * _SECOND_MS,
        "localProxyConnectTimeoutMs",
        "Time-out of connections inside this process: to the gRPC server, from a port that serves plain text "
        "and TLS, or from the remoting port.",
    )
    use_endpoint_port_from_request: JavaBoolean = setting(
        False,
        "useEndpointPortFromRequest",
        "Answer route requests with the port that the client named, not with grpcServerPort; for a proxy "
        "behind a load balancer with another port.",
    )
    grpc_shutdown_time_seconds: Seconds = setting(
        30, "grpcShutdownTimeSeconds", "Time that open calls get to end at a graceful shutdown."
    )


class LimitSettings(SettingsGroup):
    """Limits of messages and times"""

    max_message_size: JavaInt = setting(
        4 * 1024 * 1024, "maxMessageSize", f"Largest body of a message; {_LONG}", unit="bytes"
    )
    enable_message_body_empty_check: JavaBoolean = setting(
        True, "enableMessageBodyEmptyCheck", "Refuse messages without a body."
    )
    max_user_property_size: ByteCount = setting(
        16 * 1024, "maxUserPropertySize", "Most bytes of a message's properties, tag and keys together."
    )
    user_property_max_num: Natural = setting(
        128, "userPropertyMaxNum", "Most properties of a message that the application sets."
    )
    max_message_group_size: JavaInt = setting(
        64, "maxMessageGroupSize", f"Size that a message group must stay below; {_LONG}", unit="bytes"
    )
    default_invisible_time_ms: Milliseconds = setting(
        _MINUTE_MS,
        "defaultInvisibleTimeMills",
        "Invisible time of messages that the proxy keeps invisible for a push consumer.",
    )
    min_invisible_time_ms: MillisecondsOrZero = setting(
        10 * _SECOND_MS, "minInvisibleTimeMillsForRecv", "Least invisible time of a receive."
    )
    max_invisible_time_ms: JavaLong = setting(
        12 * _HOUR_MS, "maxInvisibleTimeMills", f"Longest invisible time; {_LONG}", unit="ms"
    )
    max_delay_time_ms: JavaLong = setting(
        24 * _HOUR_MS, "maxDelayTimeMills", f"Longest delay of a delivery; {_LONG}", unit="ms"
    )
    max_transaction_recovery_seconds: JavaLong = setting(
        3600,
        "maxTransactionRecoverySecond",
        f"Longest time that a producer may ask for before its transaction is checked; {_LONG}",
        unit="s",
    )
    enable_topic_message_type_check: JavaBoolean = setting(
        True,
        "enableTopicMessageTypeCheck",
        "Refuse messages of another type than their topic's attribute message.type.",
    )


class ClientPolicySettings(SettingsGroup):
    """Policies that clients get"""

    producer_max_attempts: Count = setting(
        3, "grpcClientProducerMaxAttempts", "Attempts of a producer to send one message."
    )
    producer_backoff_initial_ms: MillisecondsOrZero = setting(
        10, "grpcClientProducerBackoffInitialMillis", "Pause of a producer after its first attempt."
    )
    producer_backoff_max_ms: MillisecondsOrZero = setting(
        1000, "grpcClientProducerBackoffMaxMillis", "Longest pause of a producer between attempts."
    )
    producer_backoff_multiplier: Count = setting(
        2, "grpcClientProducerBackoffMultiplier", "Factor by which this pause grows."
    )
    min_long_polling_ms: MillisecondsOrZero = setting(
        5 * _SECOND_MS,
        "grpcClientConsumerMinLongPollingTimeoutMillis",
        "Shortest time that an empty receive is held.",
    )
    max_long_polling_ms: Milliseconds = setting(
        20 * _SECOND_MS,
        "grpcClientConsumerMaxLongPollingTimeoutMillis",
        "Longest time that an empty receive is held.",
    )
    long_polling_batch_size: Count = setting(
        32, "grpcClientConsumerLongPollingBatchSize", "Messages that a push consumer asks for at once."
    )
    channel_expired_timeout_ms: Milliseconds = setting(
        120 * _SECOND_MS,
        "channelExpiredTimeout",
        "Time without a heartbeat after which a client counts as gone.",
    )


class FlowSettings(SettingsGroup):
    """Flow limits

    Each kind of gRPC call has a limit of calls in progress. The proxy answers a call beyond its limit with
    TOO_MANY_REQUESTS.
    """

    producer_queue_capacity: Count = setting(
        10_000, "grpcProducerThreadQueueCapacity", "Most sends and recalls in progress."
    )
    consumer_queue_capacity: Count = setting(
        10_000,
        "grpcConsumerThreadQueueCapacity",
        "Most calls of consumers in progress; receives and pulls that a broker holds are excluded.",
    )
    route_queue_capacity: Count = setting(
        10_000, "grpcRouteThreadQueueCapacity", "Most queries of routes and assignments in progress."
    )
    client_manager_queue_capacity: Count = setting(
        10_000,
        "grpcClientManagerThreadQueueCapacity",
        "Most heartbeats, terminations and commands of telemetry streams in progress.",
    )
    transaction_queue_capacity: Count = setting(
        10_000, "grpcTransactionThreadQueueCapacity", "Most ends of transactions in progress."
    )


class RenewalSettings(SettingsGroup):
    """Renewal of invisible times"""

    enable_proxy_auto_renew: JavaBoolean = setting(
        True,
        "enableProxyAutoRenew",
        "Keep messages of push consumers invisible until they are acknowledged.",
    )
    renew_schedule_period_ms: Milliseconds = setting(
        5 * _SECOND_MS, "renewSchedulePeriodMillis", "Interval of the search for messages to renew."
    )
    renew_ahead_time_ms: MillisecondsOrZero = setting(
        10 * _SECOND_MS, "renewAheadTimeMillis", "Time before its end at which an invisible time is renewed."
    )
    renew_max_time_ms: MillisecondsOrZero = setting(
        3 * _HOUR_MS, "renewMaxTimeMillis", "Time after its receipt until which a message is renewed."
    )
    max_renew_retry_times: Natural = setting(
        3, "maxRenewRetryTimes", "Failed renewals of a message in a row after which it is given up."
    )
    invisible_time_when_clear_ms: MillisecondsOrZero = setting(
        1000,
        "invisibleTimeMillisWhenClear",
        "Invisible time left to the unacknowledged messages of a client that has gone.",
    )


class CacheSettings(SettingsGroup):
    """Caches of routes, topics and groups"""

    route_expired_seconds: Seconds = setting(
        300, "topicRouteServiceCacheExpiredSeconds", "Time after its last use until a route is forgotten."
    )
    route_refresh_seconds: Seconds = setting(
        20, "topicRouteServiceCacheRefreshSeconds", "Age at which a route in use is asked for again."
    )
    route_max_num: Count = setting(20000, "topicRouteServiceCacheMaxNum", "Most routes in the cache.")
    topic_expired_seconds: Seconds = setting(
        300, "topicConfigCacheExpiredSeconds", "Time after its last use until a topic's type is forgotten."
    )
    topic_refresh_seconds: Seconds = setting(
        20, "topicConfigCacheRefreshSeconds", "Age at which a topic's type is asked for again."
    )
    topic_max_num: Count = setting(20000, "topicConfigCacheMaxNum", "Most topics in the cache.")
    group_expired_seconds: Seconds = setting(
        300,
        "subscriptionGroupConfigCacheExpiredSeconds",
        "Time after its last use until a group's configuration is forgotten.",
    )
    group_refresh_seconds: Seconds = setting(
        20,
        "subscriptionGroupConfigCacheRefreshSeconds",
        "Age at which a group's configuration is asked for again.",
    )
    group_max_num: Count = setting(20000, "subscriptionGroupConfigCacheMaxNum", "Most groups in the cache.")


class ProxySettings(
    FaceSettings,
    ProxyTlsSettings,
    ProxyAccessSettings,
    LimitSettings,
    ClientPolicySettings,
    FlowSettings,
    RenewalSettings,
    CacheSettings,
):
    """The proxy"""

    rocketmq_cluster_name: JavaString = setting(
        "DefaultCluster",
        "rocketMQClusterName",
        "Cluster whose brokers are asked for the configuration of consumer groups.",
    )
    proxy_name: JavaString = setting(
        key="proxyName",
        meaning="Name of this proxy; part of the client id that brokers know it by.",
        default_factory=socket.gethostname,
        default_text="${hostname}",
    )
    namesrv_addr: JavaString = setting(
        "", "namesrvAddr", "Name servers of the cluster, `host:port;host:port`."
    )
    transaction_heartbeat_period_seconds: Seconds = setting(
        20,
        "transactionHeartbeatPeriodSecond",
        "Interval of the heartbeats by which brokers know the producers of transactions.",
    )
    most_member_connections: Natural = setting(
        10_000,
        "consumerConnectionsMaxNum",
        "Most connections to brokers that the proxy opens for consumers, so that brokers list them as "
        "members. Consumers beyond the limit are served, but not listed.",
        unit="connections",
        ours=True,
    )
    request_timeout_ms: Milliseconds = setting(
        3000, "requestTimeoutMillis", "Time-out of a request to a broker that holds none.", ours=True
    )
