"""Topic names: which ones are valid, and which are reserved for the system.

Source: Apache RocketMQ 5.3.3, TopicValidator, MixAll, KeyBuilder, PopAckConstants, TimerMessageStore.
"""

from __future__ import annotations

import re
from typing import Final

MAX_TOPIC_LENGTH: Final = 127
# Limit of topics named by the broker: their queues are in folders of that name (HookUtils).
MAX_STORED_TOPIC_BYTES: Final = 255

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TRANSACTION_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANSACTION_OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANSACTION_CHECKED_OUT_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"

SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
_REVIVE_PREFIX: Final = f"{SYSTEM_TOPIC_PREFIX}REVIVE_LOG_"
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
LIGHT_QUEUE_PREFIX: Final = "%LMQ%"  # of queues without a topic of their own

# System topics of every 5.3.3 broker; `SystemTopics` adds those named after this broker.
ALWAYS_SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRACE_TOPIC,
        TRANSACTION_HALF_TOPIC,
        TRANSACTION_OP_TOPIC,
        TRANSACTION_CHECKED_OUT_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        CHECKPOINT_TOPIC,
    }
)

# Topics that clients cannot send to.
SEND_PROHIBITED_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANSACTION_HALF_TOPIC,
        TRANSACTION_OP_TOPIC,
        TRANSACTION_CHECKED_OUT_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)

_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]*+", re.ASCII)


def has_illegal_characters(name: str) -> bool:
    """Whether a topic or group name has characters other than letters, digits, `%`, `|`, `_` and `-`."""
    return _LEGAL.fullmatch(name) is None


def topic_name_problem(name: str) -> str | None:
    """Return the remark for an invalid topic name; None for a valid one."""
    if not name or name.isspace():
        return "the topic's name is blank"
    if has_illegal_characters(name):
        return (
            f"the topic name {name[:MAX_TOPIC_LENGTH]!r} is illegal: only letters, digits and the "
            "characters % | _ - are allowed"
        )
    if len(name) > MAX_TOPIC_LENGTH:
        return f"the topic name has {len(name)} characters, the limit is {MAX_TOPIC_LENGTH}"
    return None


def stored_topic_problem(topic: str) -> str | None:
    """Return the remark for a topic name that the store cannot hold; None if it can."""
    length = len(topic) if topic.isascii() else len(topic.encode())
    if length <= MAX_STORED_TOPIC_BYTES:
        return None
    return (
        f"topic {topic[:MAX_TOPIC_LENGTH]}... has {length} bytes, the limit is {MAX_STORED_TOPIC_BYTES}: "
        "choose shorter names for the topic and the consumer group"
    )


def is_send_prohibited(topic: str) -> bool:
    """Whether clients may not send to the topic, because only the broker writes it.

    (Apache's broker accepts client messages there that its timer delivers to any topic, or fails on.)
    """
    return topic in SEND_PROHIBITED_TOPICS or topic == TIMER_TOPIC


def retry_topic(group: str) -> str:
    """Return the retry topic of a group, for messages that it failed to consume."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the dead letter topic of a group, for messages after their last retry."""
    return DEAD_LETTER_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Return the reply topic of a cluster."""
    return f"{cluster}_REPLY_TOPIC"


def revive_topic(cluster: str) -> str:
    """Return the revive topic of a cluster, which holds POP's check points and acknowledgements."""
    return f"{_REVIVE_PREFIX}{cluster}"


def is_revive_topic(topic: str) -> bool:
    """Whether a topic is the revive topic of any cluster."""
    return topic.startswith(_REVIVE_PREFIX)


def member_group_topic(broker_name: str) -> str:
    """Return the topic whose route old name servers use to list the members of a broker group."""
    return f"{SYSTEM_TOPIC_PREFIX}SYNC_BROKER_MEMBER_{broker_name}"
