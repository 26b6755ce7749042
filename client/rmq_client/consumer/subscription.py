"""Subscriptions to topics: tags, as an expression `TagA || TagB` or `*`, or an SQL92 expression."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from rmq_remoting.bodies.heartbeat import (
    SQL92_EXPRESSION,
    SUBSCRIBE_ALL,
    TAG_EXPRESSION,
    SubscriptionData,
)
from rmq_remoting.java_hash import tags_code
from rmq_remoting.message import MessageExt

from ..checks import check_text, refuse
from ..errors import InvalidArgumentError
from ..names import RETRY_TOPIC_PREFIX, check_topic
from ..namespaces import Namespace

_OR: Final = "||"

Topics: TypeAlias = "str | Mapping[str, str] | Iterable[str]"
"""Topics of a consumer: one name, several names, or filter expressions by name."""


class Sql(str):
    """An SQL92 expression on properties, `Sql("amount > 5 AND region = 'eu'")`, wherever tags are allowed.

    Brokers evaluate it, if they have `enablePropertyFilter=true`.
    """

    __slots__ = ()


class Subscription:
    """One topic and its filter.

    Brokers filter by hash codes of tags, so a few messages with other tags arrive. `select` compares the tags
    themselves.
    """

    __slots__ = ("data", "tags", "topic")

    def __init__(self, topic: str, expression: str | None, version_ms: int) -> None:
        """`version_ms`: time of the subscription; brokers use the newest one. Raises UsageError."""
        # A group's name, and so that of its retry topic, may be longer than other topics'.
        if not isinstance(topic, str) or not topic.startswith(RETRY_TOPIC_PREFIX):
            check_topic(topic)
        if expression is not None and not isinstance(expression, str):
            text = "must be tags such as 'paid || sent', '*' for all messages, or Sql(...)"
            raise refuse("expression", expression, text)
        self.topic = topic
        self.tags: frozenset[str] = frozenset()
        self.data = SubscriptionData(
            topic=topic,
            sub_string=expression or SUBSCRIBE_ALL,
            sub_version=version_ms,
            expression_type=SQL92_EXPRESSION if isinstance(expression, Sql) else TAG_EXPRESSION,
        )
        if isinstance(expression, Sql):
            if not expression.strip():
                raise InvalidArgumentError(
                    f"subscription to {topic}: the SQL92 expression is empty; use '*' for all messages"
                )
        elif self.data.sub_string != SUBSCRIBE_ALL:
            # Apache RocketMQ 5.3.3, FilterAPI.buildSubscriptionData.
            tags = list(
                dict.fromkeys(tag for part in self.data.sub_string.split(_OR) if (tag := part.strip()))
            )
            if not tags:
                raise InvalidArgumentError(
                    f"subscription to {topic}: there is no tag in {expression!r}; use '*' for all messages"
                )
            for tag in tags:
                if "|" in tag:
                    raise InvalidArgumentError(
                        f"subscription to {topic}: tag {tag!r} of {expression!r} contains a single |; tags "
                        "are separated by || (for a tag with a | in it: Sql(\"TAGS = 'a|b'\"))"
                    )
            self.tags = frozenset(tags)
            self.data.tags_set = tags
            self.data.code_set = list(dict.fromkeys(tags_code(tag) for tag in tags))

    @property
    def is_by_properties(self) -> bool:
        """Whether only brokers can evaluate the filter."""
        return self.data.expression_type != TAG_EXPRESSION

    def wants_as(self, other: Subscription) -> bool:
        """Whether another subscription to the topic selects the same messages, as far as can be compared."""
        if self.is_by_properties or other.is_by_properties:
            return self.data.sub_string == other.data.sub_string
        return self.tags == other.tags

    def select(self, messages: Iterable[MessageExt]) -> list[MessageExt]:
        """Return the messages that match."""
        tags = self.tags
        return [message for message in messages if message.tags in tags] if tags else list(messages)


def subscriptions_to(topics: Topics, namespace: Namespace, version_ms: int) -> dict[str, Subscription]:
    """Return the subscriptions for `topics`, by the topics' full names.

    A string is the name of one topic, although it is a sequence of strings, too. Topics without an expression
    are consumed whole. Raises UsageError for a name or an expression that no broker accepts.
    """
    if isinstance(topics, str):
        topics = (topics,)
    elif not isinstance(topics, Iterable) or isinstance(topics, bytes):
        text = "must be the name of a topic, several names, or a mapping of names to expressions"
        raise refuse("topics", topics, text)
    if isinstance(topics, Mapping):
        expressions = topics
    else:
        expressions = {check_text("topics", topic): SUBSCRIBE_ALL for topic in topics}
    subscriptions = [
        Subscription(namespace.checked_topic(topic), expression, version_ms)
        for topic, expression in expressions.items()
    ]
    return {subscription.topic: subscription for subscription in subscriptions}
