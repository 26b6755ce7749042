"""Message filters made from subscriptions, in the form that the store's reader takes.

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
    """The wanted messages, by hash codes of tags and by properties. None means all messages."""

    tags_codes: frozenset[int] | None = None
    properties: PropertyFilter | None = None


EVERYTHING: Final = MessageFilter()
# The current subscription of a group to a topic.
FindSubscription = Callable[[str, str], Subscription | None]


class MessageFilters:
    """Builds filters from subscriptions, for pulls, pops and everything else that reads for consumers."""

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
        """Return the filter of a subscription carried by the request. Raises CommandError."""
        if subscription.expression_type != TAG_EXPRESSION:
            self.check_allowed(subscription)
        return self.of_pop(group, subscription)

    def of_pop(self, group: str, subscription: Subscription) -> MessageFilter:
        """Return the filter of a pop, which needs no `enablePropertyFilter` (PopMessageProcessor).

        Raises CommandError.
        """
        if subscription.expression_type == TAG_EXPRESSION:
            return self._by_tags(group, subscription)
        try:
            return _by_properties(self.compile(subscription))
        except ExpressionError as error:
            raise CommandError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error

    def of_group(self, group: str, subscription: Subscription, sub_version: int) -> MessageFilter:
        """Return the filter of a subscription from heartbeats; `sub_version` is the request's.

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
                f"the filter of group {group} for {subscription.topic} at this broker is older than the "
                "request's; it is updated by the next heartbeat",
            )
        return EVERYTHING if subscription.class_filter_mode else _of_known(known)

    def check_allowed(self, subscription: Subscription) -> None:
        """Raise CommandError if this broker does not filter by properties."""
        if not self._settings.enable_property_filter:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"this broker does not filter by {subscription.expression_type} expressions: start it with "
                "enablePropertyFilter=true, or subscribe by tags",
            )

    def compile(self, subscription: Subscription) -> Expression:
        """Return the compiled expression of a subscription. Raises ExpressionError."""
        return self._expressions.compile(subscription.expression_type, subscription.sub_string)

    def _by_tags(self, group: str, subscription: Subscription) -> MessageFilter:
        properties = None
        if self._settings.filter_support_retry and subscription.topic.startswith(RETRY_PREFIX):
            properties = self._of_origin(group)
        if subscription.takes_all or subscription.class_filter_mode:
            return EVERYTHING if properties is None else MessageFilter(None, properties)
        return MessageFilter(subscription.code_set, properties)

    def _of_origin(self, group: str) -> PropertyFilter:
        """Return the filter of redelivered messages: each by the group's filter for its original topic."""

        def matches(properties: bytes) -> bool:
            origin = find_property(properties, b"RETRY_TOPIC")
            known = None if origin is None else self._present(group, origin.decode("utf-8", "replace"))
            return known is None or known.expression.matches(properties)

        return PropertyFilter(f"origins of group {group}", matches, 2)

    def _present(self, group: str, topic: str) -> ConsumerFilter | None:
        """Return the filter of the group's current subscription to the topic; None without one."""
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
        """Return the reason why a known subscription has no filter."""
        remark = f"the filter of group {group} for topic {subscription.topic} is not known here"
        try:
            self.compile(subscription)
        except ExpressionError as error:
            return f"{remark}: {error}"
        return f"{remark} yet: it comes with the next heartbeat"


def _of_known(known: ConsumerFilter) -> MessageFilter:
    """Return the message filter for an expression whose matches are recorded in bit maps."""
    expression = known.expression

    def may_match(store_timestamp_ms: int, bit_map: bytes) -> bool:
        return store_timestamp_ms <= known.judged_after_ms or may_contain(bit_map, known.bloom)

    name = f"{expression.text} since {known.judged_after_ms}"
    return _filter(name, expression, may_match)


def _by_properties(expression: Expression) -> MessageFilter:
    return _filter(expression.text, expression, None)


def _filter(
    name: str, expression: Expression, may_match: Callable[[int, bytes], bool] | None
) -> MessageFilter:
    properties = PropertyFilter(name, expression.matches, expression.tests, may_match, expression.needles)
    return MessageFilter(None, properties)
