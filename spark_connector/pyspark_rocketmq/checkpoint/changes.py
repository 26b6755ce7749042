"""Changes of a position: other offsets for some queues, or fewer queues."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..offsets import QueueKey, QueueOffsets
from ..options import Anchor, AtOffsets, AtTime, Position
from ..options.option_types import timestamp_ms
from ..stream_position import StreamPosition
from .files import CheckpointError


@dataclass(frozen=True, slots=True)
class Chosen:
    """The queues that a command is about; None for all."""

    topic: str | None = None
    broker: str | None = None
    queue_id: int | None = None

    def __contains__(self, queue: QueueKey) -> bool:
        return (
            self.topic in (None, queue.topic)
            and self.broker in (None, queue.broker)
            and self.queue_id in (None, queue.queue_id)
        )

    def of(self, offsets: QueueOffsets) -> QueueOffsets:
        """Return the chosen ones of some queues."""
        return offsets.only(self.__contains__)


@dataclass(frozen=True, slots=True)
class Goal:
    """Where queues are moved to. `group`: the consumer group whose offsets count, for Anchor.GROUP."""

    position: Position | int
    group: str = ""

    @classmethod
    def parse(cls, text: str) -> Goal:
        """Parse `earliest`, `latest`, `group:NAME`, `offset:NUMBER` or a time. Raises CheckpointError."""
        kind, _, rest = text.partition(":")
        if text in ("earliest", "latest"):
            return cls(Anchor(text))
        if kind == "group" and rest:
            return cls(Anchor.GROUP, rest)
        try:
            if kind == "offset":
                offset = int(rest)
                if offset < 0:
                    raise ValueError("an offset is 0 or more")
                return cls(offset)
            return cls(AtTime(timestamp_ms(text)))
        except ValueError as error:
            raise CheckpointError(
                f"--to {text!r}: it must be earliest, latest, group:NAME, offset:NUMBER, or a time as ms "
                f"since 1970 UTC or ISO 8601 with a time zone ({error})"
            ) from error

    def at(self, queues: QueueOffsets) -> Position:
        """Return the position for these queues."""
        if isinstance(self.position, int):
            return AtOffsets(QueueOffsets(dict.fromkeys(queues, self.position)))
        return self.position


def moved(position: StreamPosition, ends: QueueOffsets) -> StreamPosition:
    """Return a position with other offsets for some of its queues."""
    return replace(position, offsets=position.offsets.merged(ends))


def dropped(position: StreamPosition, chosen: Chosen) -> StreamPosition:
    """Return a position without the chosen queues, read and retired ones. Raises CheckpointError."""
    offsets, retired = (part.only(lambda q: q not in chosen) for part in (position.offsets, position.retired))
    kept = replace(position, offsets=offsets, retired=retired)
    if not kept.offsets:
        raise CheckpointError(
            "no queue would be left: delete the checkpoint instead, and start the query with startingOffsets"
        )
    return kept
