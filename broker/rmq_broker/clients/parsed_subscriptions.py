"""Subscriptions that pulls and pops carry themselves, each parsed once."""

from __future__ import annotations

from typing import Any, Final

from rmq_remoting.bounded_cache import ENTRY_OVERHEAD_BYTES, BoundedCache
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError

from .subscription import ExpressionError, Subscription

_MAX_SUBSCRIPTIONS: Final = 10_000
_MAX_BYTES: Final = 64 * 1024 * 1024
# An expression of 1,024 characters may name 512 tags, each with a string and a hash.
_MAX_ENTRY_BYTES: Final = 1024 * 32
_CHARACTER_BYTES: Final = 30  # with the parsed tags

_Key = tuple[str, str | None, str | None]


class ParsedSubscriptions:
    """Parses expressions and keeps the subscriptions, unless the expression is too long."""

    def __init__(self) -> None:
        self._subscriptions: BoundedCache[_Key, Subscription] = BoundedCache(
            "parsed_subscriptions",
            max_entries=_MAX_SUBSCRIPTIONS,
            max_bytes=_MAX_BYTES,
            size_of=_size_of,
            max_entry_bytes=_MAX_ENTRY_BYTES,
        )
        self.caches: tuple[BoundedCache[Any, Any], ...] = (self._subscriptions,)

    def of(self, topic: str, expression: str | None, expression_type: str | None) -> Subscription:
        """Return the subscription. Raises CommandError for an expression that cannot be parsed."""
        key = (topic, expression, expression_type)
        subscription = self._subscriptions.get(key)
        if subscription is None:
            try:
                subscription = Subscription.parse(*key)
            except ExpressionError as error:
                raise CommandError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
            self._subscriptions.put(key, subscription)
        return subscription


def _size_of(key: _Key, subscription: Subscription) -> int:
    return ENTRY_OVERHEAD_BYTES + len(key[0]) + _CHARACTER_BYTES * len(subscription.sub_string)
