"""Names of topics and groups, checked before a request is sent."""

from __future__ import annotations

import re
from typing import Final

from .checks import shown
from .errors import InvalidArgumentError, UsageError

# Apache RocketMQ 5.3.3, Validators and TopicValidator.
_ALLOWED: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_NAMESPACE: Final = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_TOPIC_LENGTH: Final = 127
_MAX_GROUP_LENGTH: Final = 255

# Brokers that create topics on demand are the ones with a route to it
# (TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC).
AUTO_CREATE_TOPIC: Final = "TBW102"
RETRY_TOPIC_PREFIX: Final = "%RETRY%"
DEAD_LETTER_TOPIC_PREFIX: Final = "%DLQ%"

# Topics that only brokers may send to (TopicValidator.isNotAllowedSendTopic).
_NOT_FOR_SENDING: Final = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)

# Topics of the brokers themselves. Like groups of this kind they have no namespace (Apache RocketMQ 5.3.3,
# TopicValidator.isSystemTopic, MixAll.isSysConsumerGroup).
SYSTEM_TOPICS: Final = _NOT_FOR_SENDING | {
    AUTO_CREATE_TOPIC,
    "BenchmarkTest",
    "RMQ_SYS_TRACE_TOPIC",
    "CHECKPOINT_TOPIC",
}
_SYSTEM_PREFIXES: Final = ("rmq_sys_", "CID_RMQ_SYS_")
# Replies go to a topic of the cluster, and from there to the requester, whatever the namespace. (Apache's
# client puts its namespace before this name, too. Such a topic exists only if brokers create topics on
# demand.)
_REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"


def check_topic(topic: str) -> None:
    """Raise UsageError for a name that no broker accepts."""
    _check(topic, "topic", _MAX_TOPIC_LENGTH)


def check_topic_to_send(topic: str) -> None:
    """Raise UsageError for a topic that clients cannot send to."""
    _check(topic, "topic", _MAX_TOPIC_LENGTH)
    if topic in _NOT_FOR_SENDING:
        raise UsageError(f"topic {topic} is a system topic of the brokers: clients cannot send to it")


def check_group(group: str) -> None:
    """Raise UsageError for a name that no broker accepts."""
    _check(group, "group", _MAX_GROUP_LENGTH)


def check_namespace(name: str) -> None:
    """Raise UsageError for an invalid namespace. The empty text is no namespace."""
    if not isinstance(name, str) or (name and not _NAMESPACE.fullmatch(name)):
        raise InvalidArgumentError(
            f"namespace {shown(name)}: only the characters a-z A-Z 0-9 _ - are allowed"
        )


def is_of_no_namespace(name: str) -> bool:
    """Whether a topic or group belongs to the cluster, and so to no namespace."""
    return name in SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIXES) or name.endswith(_REPLY_TOPIC_SUFFIX)


def split_prefix(name: str) -> tuple[str, str]:
    """Split off the prefix of retry and dead-letter topics; it is empty for other names."""
    for prefix in (RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _check(name: str, kind: str, max_length: int) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(f"{kind} {shown(name)}: a name is needed, of type str")
    if len(name) > max_length:
        raise InvalidArgumentError(
            f"{kind} {shown(name)} has {len(name)} characters, {max_length} are allowed"
        )
    if not _ALLOWED.fullmatch(name):
        raise InvalidArgumentError(f"{kind} {name!r}: only the characters a-z A-Z 0-9 _ - % | are allowed")
