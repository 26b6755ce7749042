"""Settings of POP."""

from __future__ import annotations

import enum

from rmq_remoting.daemon.settings import (
    Count,
    JavaBoolean,
    JavaInt,
    Milliseconds,
    Percent,
    SettingsGroup,
    live,
    setting,
)


class MessageRequestModeSetting(enum.StrEnum):
    """The two ways in which consumers get messages (Apache RocketMQ 5.3.3, MessageRequestMode)."""

    PULL = "PULL"
    POP = "POP"


class PopSettings(SettingsGroup):
    """POP"""

    enable_retry_topic_v2: JavaBoolean = live(
        False,
        "enableRetryTopicV2",
        "Redeliver through the retry topic `%RETRY%GROUP+TOPIC` instead of `%RETRY%GROUP_TOPIC`.",
    )
    retrieve_from_retry_topic_v1: JavaBoolean = live(
        True,
        "retrieveMessageFromPopRetryTopicV1",
        "With `enableRetryTopicV2`, still read the retry topics with `_`, too.",
    )
    pop_from_retry_probability: Percent = live(
        20,
        "popFromRetryProbability",
        "Share of pops that read the retry topic first; the others read it last, if they have room left.",
    )
    pop_response_returns_retry_topic: JavaBoolean = live(
        False,
        "popResponseReturnActualRetryTopic",
        "Return messages of a retry topic under its own name instead of the original topic's.",
    )
    init_pop_offset_by_check_msg_in_mem: JavaBoolean = live(
        True,
        "initPopOffsetByCheckMsgInMem",
        "A new group that starts at the newest message gets a whole queue if the queue's first "
        "message is still in memory.",
    )
    pop_ck_max_buffer_size: Count = live(
        200_000,
        "popCkMaxBufferSize",
        "Most pops with unacknowledged messages; each takes about 620 bytes of memory.",
        unit="pops",
    )
    enable_pop_message_threshold: JavaBoolean = live(
        False, "enablePopMessageThreshold", "Limit the messages of one queue that a group may have in flight."
    )
    pop_inflight_message_threshold: Count = live(
        10_000, "popInflightMessageThreshold", "This limit.", unit="messages"
    )
    max_pop_polling_size: Count = live(
        100_000,
        "maxPopPollingSize",
        "Most pops that wait for messages, and as many notifications. One connection may have half of them, "
        "and a sixteenth once half of them wait. A pop beyond is answered POLLING_FULL.",
    )
    pop_polling_size: Count = live(
        1024, "popPollingSize", "Most pops that wait for the same queue of a topic, or for any of its queues."
    )
    pop_polling_map_size: Count = live(
        100_000, "popPollingMapSize", "Most combinations of topic, group and queue that pops wait for."
    )
    revive_queue_nums: Count = setting(
        8,
        "reviveQueueNum",
        "Queues of the revive topic, over which check points are spread for Apache's broker.",
    )
    server_load_balancer_enable: JavaBoolean = live(
        True,
        "serverLoadBalancerEnable",
        "Divide the queues among the consumers that ask the broker for an assignment; off: each "
        "consumer gets all of them.",
    )
    default_message_request_mode: MessageRequestModeSetting = live(
        MessageRequestModeSetting.PULL,
        "defaultMessageRequestMode",
        "Mode of groups that ask the broker for an assignment and have none set (setConsumeMode).",
    )
    default_pop_share_queue_num: JavaInt = live(
        -1,
        "defaultPopShareQueueNum",
        "How many additional POP consumers may share a queue by default; 0 or less: all of them.",
    )
    load_balance_poll_name_server_interval_ms: Milliseconds = live(
        30_000,
        "loadBalancePollNameServerInterval",
        "Greatest age of the route by which queues are divided.",
    )
