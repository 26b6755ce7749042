"""Settings of POP in a push consumer."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UsageError
from ..requests.pop_client import MAX_POPPED


@dataclass(frozen=True, slots=True)
class PopSettings:
    """How a push consumer pops, if brokers divide the queues.

    `invisible_seconds`: time for which no other consumer gets a message. A message that the listener has for
    longer is redelivered, whatever the listener returns. `batch_size`: messages of one pop. `max_unsettled`:
    above this number of unacknowledged messages of one source, no more are popped.
    """

    invisible_seconds: float = 60.0
    batch_size: int = MAX_POPPED
    max_unsettled: int = 96

    def __post_init__(self) -> None:
        """Check the values."""
        if not 1 <= self.batch_size <= MAX_POPPED:
            raise UsageError(f"batch_size={self.batch_size}: must be between 1 and {MAX_POPPED}")
        if self.invisible_seconds < 1 or self.max_unsettled < 0:
            raise UsageError(f"{self}: invisible_seconds must be at least 1, and no bound negative")

    @property
    def invisible_ms(self) -> int:
        """The invisible time in milliseconds."""
        return round(self.invisible_seconds * 1000)
