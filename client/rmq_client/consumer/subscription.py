"""What of a topic a consumer wants: tags, as an expression `TagA || TagB`, or `*`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmq_remoting.bodies.heartbeat import SUBSCRIBE_ALL, TAG_EXPRESSION, SubscriptionData
from rmq_remoting.java_hash import tags_code
from rmq_remoting.message import MessageExt

from ..errors import UsageError
from ..names import RETRY_TOPIC_PREFIX, check_topic

_OR: Final = "||"


class Subscription:
    """One topic and what is wanted of it.

    Brokers filter by hash codes of tags, so a few messages with other tags come through: `select` has the
    last word, by the tags themselves.
    """

    __slots__ = ("data", "tags", "topic")

    def __init__(
        self, topic: str, expression: str | None, version_ms: int, expression_type: str = TAG_EXPRESSION
    ) -> None:
        """`version_ms`: when it was made; brokers use the newest that they hear of. Raises UsageError."""
        if not topic.startswith(RETRY_TOPIC_PREFIX):  # a group's name may be longer than a topic's
            check_topic(topic)
        self.topic = topic
        self.tags: frozenset[str] = frozenset()
        self.data = SubscriptionData(
            topic=topic,
            sub_string=expression or SUBSCRIBE_ALL,
            sub_version=version_ms,
            expression_type=expression_type,
        )
        if expression_type != TAG_EXPRESSION:
            if not expression:
                raise UsageError(
                    f"subscription to {topic}: an expression of type {expression_type} is needed"
                )
        elif self.data.sub_string != SUBSCRIBE_ALL:
            # Apache RocketMQ 5.3.3, FilterAPI.buildSubscriptionData.
            tags = list(
                dict.fromkeys(tag for part in self.data.sub_string.split(_OR) if (tag := part.strip()))
            )
            if not tags:
                raise UsageError(f"subscription to {topic}: there is no tag in {expression!r}; all is '*'")
            self.tags = frozenset(tags)
            self.data.tags_set = tags
            self.data.code_set = list(dict.fromkeys(tags_code(tag) for tag in tags))

    def select(self, messages: Iterable[MessageExt]) -> list[MessageExt]:
        """The messages that are wanted."""
        tags = self.tags
        return [message for message in messages if message.tags in tags] if tags else list(messages)
