"""Settings of topics, consumer groups and their offsets."""

from __future__ import annotations

from typing import Final

from rmq_remoting.daemon.settings import (
    Count,
    JavaBoolean,
    JavaInt,
    JavaLong,
    JavaString,
    Milliseconds,
    SettingsGroup,
    live,
    setting,
)

# Delivery and transactions accept no queue id above 65,535.
MAX_QUEUE_NUMS: Final = 65_536


class TopicSettings(SettingsGroup):
    """Topics and groups"""

    auto_create_topic_enable: JavaBoolean = live(
        True, "autoCreateTopicEnable", "Create an unknown topic when a message is sent to it."
    )
    default_topic_queue_nums: Count = setting(
        8, "defaultTopicQueueNums", "Most queues of a topic that is created by a send."
    )
    max_topic_queue_nums: JavaInt = live(
        1024,
        "maxTopicQueueNums",
        "Most queues of a topic, and of a group's retry topic, that administration creates or changes. "
        "Topics that have more keep them. Consumers that pop look at every queue.",
        minimum=1,
        maximum=MAX_QUEUE_NUMS,
        ours=True,
    )
    auto_create_subscription_group: JavaBoolean = live(
        True, "autoCreateSubscriptionGroup", "Create an unknown consumer group when it is used."
    )
    max_auto_create_topic_nums: JavaInt = live(
        50_000,
        "maxAutoCreateTopicNums",
        "Topics on this broker from which on sends create no further ones. Administration still does.",
        minimum=0,
        ours=True,
    )
    max_auto_create_group_nums: JavaInt = live(
        50_000,
        "maxAutoCreateGroupNums",
        "Consumer groups on this broker from which on clients create no further ones. Administration still "
        "does.",
        minimum=0,
        ours=True,
    )
    cluster_topic_enable: JavaBoolean = setting(
        True, "clusterTopicEnable", "Accept messages for the topic that is named after the cluster."
    )
    broker_topic_enable: JavaBoolean = setting(
        True, "brokerTopicEnable", "Accept messages for the topic that is named after the broker."
    )
    broker_permission: JavaInt = live(
        6,
        "brokerPermission",
        "Permission of the whole broker: 6 read and write, 4 read, 2 write.",
        minimum=0,
        maximum=7,
    )
    validate_system_topic_when_update_topic: JavaBoolean = live(
        True, "validateSystemTopicWhenUpdateTopic", "Refuse changes of system topics by administration."
    )
    enable_mixed_message_type: JavaBoolean = live(
        False, "enableMixedMessageType", "Allow topics for messages of all types (`message.type=MIXED`)."
    )
    forward_timeout_ms: Milliseconds = live(
        3000,
        "forwardTimeout",
        "Time-out of a request to another broker that has a part of a static topic's logical queue.",
    )
    clear_retry_topic_when_delete_topic: JavaBoolean = live(
        True, "clearRetryTopicWhenDeleteTopic", "Delete the retry topics of a topic together with it."
    )
    trace_topic_enable: JavaBoolean = setting(
        False, "traceTopicEnable", "Create the topic for message traces at start."
    )
    msg_trace_topic_name: JavaString = setting(
        "RMQ_SYS_TRACE_TOPIC", "msgTraceTopicName", "Name of the topic for message traces."
    )
    notify_consumer_ids_changed_enable: JavaBoolean = live(
        True,
        "notifyConsumerIdsChangedEnable",
        "Notify the consumers of a group at once when its members change.",
    )
    channel_expired_timeout_ms: Milliseconds = setting(
        120_000,
        "channelExpiredTimeout",
        "Time without a heartbeat after which a client is dropped and its connection closed.",
    )
    rebalance_lock_max_live_time_ms: Milliseconds = setting(
        60_000,
        "rebalanceLockMaxLiveTime",
        "Life of an orderly consumer's lock on a queue unless it is renewed. Consumers rely on a lock "
        "for 30 s and renew it every 20 s: with a shorter life, two consumers can own one queue. (In "
        "Apache's broker a system property.)",
        minimum=1_000,
        ours=True,
    )
    flush_consumer_offset_interval_ms: Milliseconds = live(
        5000, "flushConsumerOffsetInterval", "Period in which changed consumer offsets are written to disk."
    )
    enable_broadcast_offset_store: JavaBoolean = live(
        True,
        "enableBroadcastOffsetStore",
        "Keep the offsets of members of broadcasting groups, for members that switch between a proxy "
        "and a direct connection.",
    )
    broadcast_offset_expire_second: JavaLong = live(
        120,
        "broadcastOffsetExpireSecond",
        "Time without a pull after which a member that is not connected is forgotten.",
        unit="s",
        minimum=1,
    )
    broadcast_offset_expire_max_second: JavaLong = live(
        300,
        "broadcastOffsetExpireMaxSecond",
        "Time without a pull after which a connected member is forgotten.",
        unit="s",
        minimum=1,
    )
    use_server_side_reset_offset: JavaBoolean = live(
        True,
        "useServerSideResetOffset",
        "The broker itself resets offsets, and consumers learn of it with their next pull; off: the "
        "broker tells the connected consumers to do it.",
    )
