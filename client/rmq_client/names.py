"""Names of topics and groups: what servers accept, checked before anything is sent."""

from __future__ import annotations

import re
from typing import Final

from .errors import UsageError

# Apache RocketMQ 5.3.3, Validators and TopicValidator.
_ALLOWED: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_MAX_TOPIC_LENGTH: Final = 127
_MAX_GROUP_LENGTH: Final = 255

# A route to it says which brokers create topics by themselves (TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC).
AUTO_CREATE_TOPIC: Final = "TBW102"
RETRY_TOPIC_PREFIX: Final = "%RETRY%"

# Topics that brokers keep for themselves (TopicValidator.isNotAllowedSendTopic).
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


def check_topic(topic: str) -> None:
    """Raise UsageError for a name that no broker takes."""
    _check(topic, "topic", _MAX_TOPIC_LENGTH)


def check_topic_to_send(topic: str) -> None:
    """Raise UsageError for a topic that nobody can send to."""
    _check(topic, "topic", _MAX_TOPIC_LENGTH)
    if topic in _NOT_FOR_SENDING:
        raise UsageError(f"topic {topic} belongs to the brokers: nobody else can send to it")


def check_group(group: str) -> None:
    """Raise UsageError for a name that no broker takes."""
    _check(group, "group", _MAX_GROUP_LENGTH)


def _check(name: str, kind: str, max_length: int) -> None:
    if not isinstance(name, str) or not name:
        raise UsageError(f"{kind} {name!r}: a name is needed")
    if len(name) > max_length:
        raise UsageError(f"{kind} {name!r} has {len(name)} characters, {max_length} are allowed")
    if not _ALLOWED.fullmatch(name):
        raise UsageError(f"{kind} {name!r}: only the characters a-z A-Z 0-9 _ - % | are allowed")
