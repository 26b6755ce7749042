"""Settings of POP in a push consumer."""

from __future__ import annotations

from dataclasses import dataclass

from ...checks import Seconds, check_int, check_seconds, set_fields, short_repr
from ..requests.pop_client import MAX_POPPED


@dataclass(frozen=True, slots=True, init=False, repr=False)
class PopSettings:
    """How a push consumer pops, if brokers divide the queues.

    `invisible_seconds`: time for which no other consumer gets a message. A message that the listener has for
    longer is redelivered, whatever the listener returns. `max_messages`: most messages of one pop.
    `max_unacknowledged`: above this number of unacknowledged messages of one source, no more are popped.
    """

    invisible_seconds: float
    max_messages: int
    max_unacknowledged: int

    __repr__ = short_repr

    def __init__(
        self,
        invisible_seconds: Seconds = 60.0,
        max_messages: int = MAX_POPPED,
        max_unacknowledged: int = 96,
    ) -> None:
        """Raises InvalidArgumentError."""
        set_fields(
            self,
            invisible_seconds=check_seconds("invisible_seconds", invisible_seconds, least=1),
            max_messages=check_int("max_messages", max_messages, least=1, most=MAX_POPPED),
            max_unacknowledged=check_int("max_unacknowledged", max_unacknowledged, least=0),
        )

    @property
    def invisible_ms(self) -> int:
        """The invisible time in milliseconds."""
        return round(self.invisible_seconds * 1000)
