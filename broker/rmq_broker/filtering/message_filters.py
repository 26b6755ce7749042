"""What a subscription lets through, in the form that the store reads by.

Source of the rules: Apache RocketMQ 5.3.3, PullMessageProcessor, ExpressionMessageFilter and
ExpressionForRetryMessageFilter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.heartbeat import TAG_EXPRESSION
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.message_properties import find_property

from ..clients.subscription import ExpressionError, Subscription
from ..store.api import PropertyFilter
from ..topics.names import RETRY_PREFIX
from .bloom import may_contain

if TYPE_CHECKING:
    from ..settings.filters import FilterSettings
    from .expressions import Expression, Expressions
    from .filter_table import ConsumerFilter, ConsumerFilterTable


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Which messages are wanted: by hashes of tags, and by properties. None: all are."""

    tags_codes: frozenset[int] | None = None
    properties: PropertyFilter | None = None


EVERYTHING: Final = MessageFilter()
# What a group is subscribed to by now: by group and topic.
FindSubscription = Callable[[str, str], Subscription | None]


class MessageFilters:
    """Makes filters of subscriptions; for pulls, and for whatever else reads for consumers."""

    def __init__(
        self,
        settings: FilterSettings,
        expressions: Expressions,
        table: ConsumerFilterTable,
        find_subscription: FindSubscription,
    ) -> None:
        self._settings = settings
        self._expressions = expressions
        self._table = table
        self._find_subscription = find_subscription

    def of_request(self, group: str, subscription: Subscription) -> MessageFilter:
        """Of a subscription that a request itself carries. Raises CommandError."""
        if subscription.expression_type != TAG_EXPRESSION:
            self.check_allowed(subscription)
        return self.of_pop(group, subscription)

    def of_pop(self, group: str, subscription: Subscription) -> MessageFilter:
        """The same of a pop, whose expression needs no `enablePropertyFilter` (PopMessageProcessor).

        Raises CommandError.
        """
        if subscription.expression_type == TAG_EXPRESSION:
            return self._by_tags(group, subscription)
        try:
            return _by_properties(self.compile(subscription))
        except ExpressionError as error:
            raise CommandError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error

    def of_group(self, group: str, subscription: Subscription, sub_version: int) -> MessageFilter:
        """Of the subscription that a group's heartbeats tell of; `sub_version` is the request's.

        Raises CommandError.
        """
        if subscription.expression_type == TAG_EXPRESSION:
            return self._by_tags(group, subscription)
        self.check_allowed(subscription)
        known = self._table.find(subscription.topic, group)
        if known is None:
            raise CommandError(ResponseCode.FILTER_DATA_NOT_EXIST, self._what_is_wrong(group, subscription))
        if known.version < sub_version:
            raise CommandError(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                f"the filter of group {group} for {subscription.topic} that is known here is older than the "
                "request's",
            )
        return EVERYTHING if subscription.class_filter_mode else _of_known(known)

    def check_allowed(self, subscription: Subscription) -> None:
        """Raises CommandError where this broker does not filter by properties."""
        if not self._settings.enable_property_filter:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"this broker does not filter by {subscription.expression_type} expressions: start it with "
                "enablePropertyFilter=true, or subscribe by tags",
            )

    def compile(self, subscription: Subscription) -> Expression:
        """The expression of a subscription. Raises ExpressionError."""
        return self._expressions.compile(subscription.expression_type, subscription.sub_string)

    def _by_tags(self, group: str, subscription: Subscription) -> MessageFilter:
        properties = None
        if self._settings.filter_support_retry and subscription.topic.startswith(RETRY_PREFIX):
            properties = self._of_origin(group)
        if subscription.takes_all or subscription.class_filter_mode:
            return EVERYTHING if properties is None else MessageFilter(None, properties)
        return MessageFilter(subscription.code_set, properties)

    def _of_origin(self, group: str) -> PropertyFilter:
        """Messages that come again: by the group's filter of the topic that they came from."""

        def matches(properties: bytes) -> bool:
            origin = find_property(properties, b"RETRY_TOPIC")
            known = None if origin is None else self._present(group, origin.decode("utf-8", "replace"))
            return known is None or known.expression.matches(properties)

        return PropertyFilter(f"origins of group {group}", matches, 2)

    def _present(self, group: str, topic: str) -> ConsumerFilter | None:
        """The filter that the group is subscribed to the topic with by now."""
        known = self._table.find(topic, group)
        if known is None:
            return None
        wanted = self._find_subscription(group, topic)
        if wanted is None:
            return None
        is_present = (wanted.expression_type, wanted.sub_string) == (
            known.expression_type,
            known.expression.text,
        )
        return known if is_present else None

    def _what_is_wrong(self, group: str, subscription: Subscription) -> str:
        """Why there is no filter of a subscription that is known."""
        remark = f"the filter of group {group} for topic {subscription.topic} is not known here"
        try:
            self.compile(subscription)
        except ExpressionError as error:
            return f"{remark}: {error}"
        return f"{remark} yet: it comes with the next heartbeat"


def _of_known(known: ConsumerFilter) -> MessageFilter:
    """Of a filter by which messages have been judged when they were stored."""
    expression = known.expression

    def may_match(store_timestamp_ms: int, bit_map: bytes) -> bool:
        return store_timestamp_ms <= known.judged_after_ms or may_contain(bit_map, known.bloom)

    name = f"{expression.text} since {known.judged_after_ms}"
    return MessageFilter(None, PropertyFilter(name, expression.matches, expression.tests, may_match))


def _by_properties(expression: Expression) -> MessageFilter:
    return MessageFilter(None, PropertyFilter(expression.text, expression.matches, expression.tests))
