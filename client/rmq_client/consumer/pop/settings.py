"""Settings of POP in a push consumer."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UsageError
from ..requests.pop_client import MAX_POPPED


@dataclass(frozen=True, slots=True)
class PopSettings:
    """How a push consumer pops, where brokers divide the queues.

    `invisible_seconds`: for so long no other consumer gets a message; what the listener has for longer comes
    again, whatever it says. `batch_size`: messages of one pop. `max_unsettled`: over so many messages of one
    source that wait for the listener or are in its hands, no more are popped.
    """

    invisible_seconds: float = 60.0
    batch_size: int = MAX_POPPED
    max_unsettled: int = 96

    def __post_init__(self) -> None:
        """Refuse what brokers would refuse, or what lets nothing through."""
        if not 1 <= self.batch_size <= MAX_POPPED:
            raise UsageError(
                f"batch_size {self.batch_size}: 1 to {MAX_POPPED} messages can be popped at once"
            )
        if self.invisible_seconds < 1 or self.max_unsettled < 0:
            raise UsageError(f"{self}: at least 1 s, and no negative bound")

    @property
    def invisible_ms(self) -> int:
        """As brokers take it."""
        return round(self.invisible_seconds * 1000)
