"""Retry topics of POP: one for each topic and group, for messages that were not acknowledged.

Source: Apache RocketMQ 5.3.3, KeyBuilder and ExtraInfoUtil.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.pop_receipt import pop_retry_topics

from ..topics.names import RETRY_PREFIX

if TYPE_CHECKING:
    from ..settings.pop import PopSettings


def pop_retry_topic(topic: str, group: str, *, version_2: bool) -> str:
    """Return the retry topic in the form with `_` (version 1) or with `+` (version 2)."""
    newer, older = pop_retry_topics(topic, group)
    return newer if version_2 else older


def popped_retry_topics(settings: PopSettings, topic: str, group: str) -> tuple[str, ...]:
    """Return the retry topics that a pop reads; they may not exist."""
    newer, older = pop_retry_topics(topic, group)
    if not settings.enable_retry_topic_v2:
        return (older,)
    return (newer, older) if settings.retrieve_from_retry_topic_v1 else (newer,)


def normal_topic(topic: str, group: str) -> str:
    """Return the topic that a retry topic belongs to, and any other topic as it is."""
    if not topic.startswith(RETRY_PREFIX):
        return topic
    for retry in pop_retry_topics("", group):
        if topic.startswith(retry):
            return topic[len(retry) :]
    return topic
