"""Subscriptions that requests carry themselves, each parsed once."""

from __future__ import annotations

from typing import Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError

from .subscription import ExpressionError, Subscription

_MAX_REMEMBERED: Final = 10_000
_MAX_REMEMBERED_CHARACTERS: Final = 1024


class ParsedSubscriptions:
    """Remembers what was parsed, of expressions that are not too long, until there are too many."""

    def __init__(self) -> None:
        self._remembered: dict[tuple[str, str | None, str | None], Subscription] = {}

    def __len__(self) -> int:
        return len(self._remembered)

    def of(self, topic: str, expression: str | None, expression_type: str | None) -> Subscription:
        """The subscription. Raises CommandError for an expression that cannot be understood."""
        key = (topic, expression, expression_type)
        subscription = self._remembered.get(key)
        if subscription is None:
            try:
                subscription = Subscription.parse(*key)
            except ExpressionError as error:
                raise CommandError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
            if len(subscription.sub_string) <= _MAX_REMEMBERED_CHARACTERS:
                if len(self._remembered) >= _MAX_REMEMBERED:
                    self._remembered.clear()
                self._remembered[key] = subscription
        return subscription
