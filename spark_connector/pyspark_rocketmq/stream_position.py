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

RETIRED: Final = "#retired"


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """Where a stream stands. `retired`: where it stopped reading queues that have left it.

    A retired queue that brokers offer again continues at that offset.
    """

    offsets: QueueOffsets
    retired: QueueOffsets = field(default_factory=QueueOffsets)

    @classmethod
    def from_nested(cls, nested: object) -> StreamPosition:
        """Convert parsed JSON. Raises BadOffsets."""
        if not isinstance(nested, dict) or RETIRED not in nested:
            return cls(QueueOffsets.from_nested(nested))
        offsets = {topic: rest for topic, rest in nested.items() if topic != RETIRED}
        retired = QueueOffsets.from_nested(nested[RETIRED])
        position = cls(QueueOffsets.from_nested(offsets), retired)
        both = [queue for queue in retired if queue in position.offsets]
        if both:
            raise BadOffsets(f"queue {both[0]} is both read and retired")
        return position

    def to_nested(self) -> dict[str, Any]:
        """Return nested dictionaries in sorted order, the form in which Spark takes offsets from a source."""
        nested: dict[str, Any] = dict(self.offsets.to_nested())
        return {RETIRED: self.retired.to_nested(), **nested} if self.retired else nested

    def moved(
        self, ends: QueueOffsets, left: Mapping[QueueKey, int | None], entered: QueueOffsets
    ) -> StreamPosition:
        """Return the position after a batch that ends at `ends`.

        `left`: queues that leave, each with the offset where it continues if brokers offer it again, or None.
        `entered`: queues that enter, with the offset where their reading begins.
        """
        offsets = ends.only(lambda queue: queue not in left).merged(entered)
        kept = {queue: offset for queue, offset in left.items() if offset is not None}
        return StreamPosition(offsets, self.retired.merged(kept).only(lambda queue: queue not in offsets))
