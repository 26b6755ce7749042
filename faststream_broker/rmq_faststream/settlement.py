"""Settlement of the messages of one call: what the handler decided, and the listener's result for it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from faststream.exceptions import SetupError

from rmq_client import ConsumeContext, ConsumeResult, OrderlyContext, Seconds

# Delay level of a dead letter (Apache RocketMQ 5.3.3, ConsumeConcurrentlyContext).
_DEAD_LETTER: Final = -1


@dataclass(slots=True)
class Settlement:
    """The first decision about the messages of a call counts; without one they are redelivered."""

    orderly: bool
    result: ConsumeResult = ConsumeResult.LATER
    delay_level: int = 0
    suspend_seconds: Seconds | None = None
    is_rejected: bool = False
    task: asyncio.Task[Any] | None = field(default_factory=asyncio.current_task)

    def ack(self) -> None:
        """Have the messages count as consumed."""
        self.result = ConsumeResult.SUCCESS

    def nack(self, delay_level: int, suspend_seconds: Seconds | None) -> None:
        """Have the messages redelivered later. Raises SetupError for an option of the other kind of
        subscriber.
        """
        if self.orderly and delay_level:
            raise SetupError(
                f"delay_level={delay_level}: an orderly subscriber repeats the message in its place; "
                "choose the pause with suspend_seconds"
            )
        if not self.orderly and suspend_seconds is not None:
            raise SetupError(
                f"suspend_seconds={suspend_seconds!r}: only orderly subscribers pause a queue; "
                "choose the delay with delay_level"
            )
        self.result = ConsumeResult.LATER
        self.delay_level = delay_level
        self.suspend_seconds = suspend_seconds

    def reject(self) -> None:
        """Make the messages dead letters."""
        self.result = ConsumeResult.LATER
        self.is_rejected = True

    def apply(self, context: ConsumeContext | OrderlyContext) -> ConsumeResult:
        """Write the decision to the context of the listener's call, and return the listener's result."""
        if isinstance(context, ConsumeContext):
            context.delay_level = _DEAD_LETTER if self.is_rejected else self.delay_level
            return self.result
        context.dead_letter = self.is_rejected
        if self.suspend_seconds is not None:
            context.suspend_seconds = self.suspend_seconds
        return self.result


CURRENT: Final[ContextVar[Settlement | None]] = ContextVar("rmq_faststream_settlement", default=None)
"""The settlement of the call that the current task runs: FastStream passes the raw messages alone on."""
