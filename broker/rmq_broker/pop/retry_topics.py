"""Where messages come back to that were popped and not acknowledged: one topic for each topic and group.

Source: Apache RocketMQ 5.3.3, KeyBuilder and ExtraInfoUtil.
"""

from __future__ import annotations

from typing import Final

from ..topics.names import RETRY_PREFIX, pop_retry_topics

# How receipts and answers name the kind of topic that a message was popped from.
NORMAL: Final = "0"
RETRY_V1: Final = "1"
RETRY_V2: Final = "2"

_V2_SEPARATOR: Final = "+"


def pop_retry_topic(topic: str, group: str, *, version_2: bool) -> str:
    """The retry topic in the form with `_` (version 1) or with `+` (version 2)."""
    newer, older = pop_retry_topics(topic, group)
    return newer if version_2 else older


def kind_of(topic: str) -> str:
    """What kind of topic this is."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if _V2_SEPARATOR in topic else RETRY_V1


def real_topic(topic: str, group: str, kind: str) -> str:
    """The topic that a message of this kind was popped from. Raises ValueError for an unknown kind."""
    if kind == NORMAL:
        return topic
    newer, older = pop_retry_topics(topic, group)
    if kind == RETRY_V2:
        return newer
    if kind == RETRY_V1:
        return older
    raise ValueError(f"{kind!r} is no kind of topic: 0, 1 (retry) or 2 (retry, version 2)")


def normal_topic(topic: str, group: str) -> str:
    """The topic that a retry topic is for; any other is its own."""
    if not topic.startswith(RETRY_PREFIX):
        return topic
    for retry in pop_retry_topics("", group):
        if topic.startswith(retry):
            return topic[len(retry) :]
    return topic
