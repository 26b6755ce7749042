"""A subscription to one topic, in the form that the pull path's filter uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmq_remoting.bodies.heartbeat import SUBSCRIBE_ALL, TAG_EXPRESSION, SubscriptionData
from rmq_remoting.java_hash import string_hash_code

_TAG_SEPARATOR = "||"
# Honest groups name some dozens.
MAX_TAGS: Final = 1024


class ExpressionError(ValueError):
    """An invalid filter expression; the message is the remark for its sender."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription to one topic; the attributes are named as in `SubscriptionData`.

    `code_set` holds the hash codes of the tags. `sub_version` is its creation time in ms; the newest wins.
    """

    topic: str
    sub_string: str = SUBSCRIBE_ALL
    expression_type: str = TAG_EXPRESSION
    sub_version: int = 0
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[int] = frozenset()
    class_filter_mode: bool = False

    @classmethod
    def parse(
        cls, topic: str, expression: str | None, expression_type: str | None = None, sub_version: int = 0
    ) -> Subscription:
        """Parse a filter expression: tags such as `a || b`, unless the type is another.

        (Apache RocketMQ 5.3.3, FilterAPI.build.) Raises ExpressionError.
        """
        if expression_type and expression_type != TAG_EXPRESSION:
            if not expression:
                raise ExpressionError(f"an expression of type {expression_type} cannot be empty")
            return cls(topic, expression, expression_type, sub_version)
        if not expression or expression == SUBSCRIBE_ALL:
            return cls(topic, sub_version=sub_version)
        check_tag_count(expression.count(_TAG_SEPARATOR) + 1)
        if not expression.replace(_TAG_SEPARATOR, ""):
            raise ExpressionError(f"the tag expression {expression!r} names no tag")
        tags = frozenset(filter(None, map(str.strip, expression.split(_TAG_SEPARATOR))))
        codes = frozenset(map(string_hash_code, tags))
        return cls(topic, expression, TAG_EXPRESSION, sub_version, tags, codes)

    @classmethod
    def of(cls, data: SubscriptionData) -> Subscription:
        """Return the subscription described by a heartbeat."""
        return cls(
            data.topic,
            data.sub_string,
            data.expression_type or TAG_EXPRESSION,
            data.sub_version,
            frozenset(data.tags_set),
            frozenset(data.code_set),
            data.class_filter_mode,
        )

    @property
    def takes_all(self) -> bool:
        """Whether every message of the topic matches."""
        return self.expression_type == TAG_EXPRESSION and self.sub_string == SUBSCRIBE_ALL

    def to_body(self) -> SubscriptionData:
        """Return the subscription in the form of the admin tools."""
        return SubscriptionData(
            topic=self.topic,
            sub_string=self.sub_string,
            expression_type=self.expression_type,
            sub_version=self.sub_version,
            tags_set=sorted(self.tags_set),
            code_set=sorted(self.code_set),
            class_filter_mode=self.class_filter_mode,
        )


def check_tag_count(tags: int) -> None:
    """Raise ExpressionError for a subscription to more tags than are allowed."""
    if tags > MAX_TAGS:
        raise ExpressionError(
            f"a subscription to {tags} tags, the limit is {MAX_TAGS}: use SQL92, or subscribe to all messages"
        )
