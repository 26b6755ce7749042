"""What the checkpoint of a stream says: the offsets of its queues, and of the queues that have left it.

The text form is that of offsets, {topic: {broker: {queue: offset}}}, with one more member: `#retired` has the
same form and holds queues that no broker offers any more. No topic can have that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .errors import BadOffsets
from .offsets import QueueKey, QueueOffsets
from .stream_losses import LOST

RETIRED: Final = "#retired"


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """Where a stream stands. `retired`: where it stopped reading queues that have left it.

    A retired queue that brokers offer again continues at that offset. `lost`: lost messages so far.
    """

    offsets: QueueOffsets
    retired: QueueOffsets = field(default_factory=QueueOffsets)
    lost: int = 0

    @classmethod
    def from_nested(cls, nested: object) -> StreamPosition:
        """Convert parsed JSON. Raises BadOffsets."""
        if not isinstance(nested, dict):
            return cls(QueueOffsets.from_nested(nested))
        offsets = {topic: rest for topic, rest in nested.items() if topic not in (RETIRED, LOST)}
        lost = nested.get(LOST, 0)
        if type(lost) is not int or lost < 0:
            raise BadOffsets(f"{LOST} is {lost!r}: it must be a number of messages")
        retired = QueueOffsets.from_nested(nested.get(RETIRED, {}))
        position = cls(QueueOffsets.from_nested(offsets), retired, lost)
        both = [queue for queue in retired if queue in position.offsets]
        if both:
            raise BadOffsets(f"queue {both[0]} is both read and retired")
        return position

    def to_nested(self) -> dict[str, Any]:
        """Return nested dictionaries in sorted order, the form in which Spark takes offsets from a source."""
        nested: dict[str, Any] = {}
        if self.lost:
            nested[LOST] = self.lost
        if self.retired:
            nested[RETIRED] = self.retired.to_nested()
        return {**nested, **self.offsets.to_nested()}

    def moved(
        self,
        ends: QueueOffsets,
        left: Mapping[QueueKey, int | None],
        entered: QueueOffsets,
        lost: int = 0,
    ) -> StreamPosition:
        """Return the position after a batch that ends at `ends`.

        `left`: queues that leave, each with the offset where it continues if brokers offer it again, or None.
        `entered`: queues that enter, with the offset where their reading begins. `lost`: messages lost since
        the last batch.
        """
        offsets = ends.only(lambda queue: queue not in left).merged(entered)
        kept = {queue: offset for queue, offset in left.items() if offset is not None}
        retired = self.retired.merged(kept).only(lambda queue: queue not in offsets)
        return StreamPosition(offsets, retired, self.lost + lost)
