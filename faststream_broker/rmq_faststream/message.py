"""Messages as handlers get them, and their acknowledgement."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

from faststream.message import StreamMessage

from rmq_client import MessageExt, Seconds

from .settlement import CURRENT

if TYPE_CHECKING:
    from .settlement import Settlement

RawMessage: TypeAlias = MessageExt | tuple[MessageExt, ...]
"""What a subscriber consumes at once: a message, or with `batch=True` several messages of one queue."""
R = TypeVar("R", MessageExt, tuple[MessageExt, ...])


class _SettledMessage(StreamMessage[R]):
    """A message whose acknowledgement becomes the result of the SDK's listener.

    The subscriber reports the result to RocketMQ when the handler has ended. The first of `ack`, `nack` and
    `reject` counts.
    """

    settlement: Settlement | None = None

    def settle_with(self, settlement: Settlement | None) -> None:
        """Set where the decision goes; None: nowhere, as for replies and messages of `get_one`."""
        self.settlement = settlement

    async def ack(self) -> None:
        """Have the message count as consumed."""
        if self.committed is None and self.settlement is not None:
            self.settlement.ack()
        await super().ack()

    async def nack(self, delay_level: int = 0, suspend_seconds: Seconds | None = None) -> None:
        """Have the message redelivered later; after too many attempts it becomes a dead letter.

        `delay_level`: one of the brokers' levels, 1 the shortest; 0: a level that grows with the attempts.
        `suspend_seconds`: pause of the queue of an orderly subscriber. Raises SetupError for the option of
        the other kind of subscriber.
        """
        if self.committed is None and self.settlement is not None:
            self.settlement.nack(delay_level, suspend_seconds)
        await super().nack()

    async def reject(self) -> None:
        """Make the message a dead letter of the group at once. The queue of an orderly subscriber goes on.

        A broadcasting subscriber skips the message, because it has no dead letters.
        """
        if self.committed is None and self.settlement is not None:
            self.settlement.reject()
        await super().reject()


class RocketMessage(_SettledMessage[MessageExt]):
    """One message. `raw_message` is the SDK's MessageExt, with topic, queue, offset, tags and keys."""


class RocketBatchMessage(_SettledMessage[tuple[MessageExt, ...]]):
    """Messages of one queue, which are acknowledged together.

    `batch_headers` holds the headers of each message, and `headers` those of the first one.
    """


def messages_of(raw: RawMessage) -> tuple[MessageExt, ...]:
    """Return the messages of one call."""
    return raw if isinstance(raw, tuple) else (raw,)


def current_settlement() -> Settlement | None:
    """Return the settlement of the call that the current task runs."""
    return CURRENT.get()
