"""Popped messages that are closed by a replica which acts as the master, for the master that returns.

The log of the replica accepts no acknowledgements. So it keeps them in memory, and hands them to its master
with the answer to the master's announcement (906). Apache's broker has no such part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rmq_remoting.bodies.pop import BatchAckMsg, ClosedPopsBody

from .check_point import CheckPoint, CheckPointKey
from .journal import Acked


class ClosedPops:
    """Messages of the master's pops that were acknowledged or redelivered here; belongs to the loop."""

    def __init__(self) -> None:
        self._offsets: dict[CheckPointKey, set[int]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._offsets.values()))

    def follow(self, points: Iterable[CheckPoint]) -> list[CheckPoint]:
        """Begin to act with the master's check points; return those with open messages.

        Messages that were closed before count, unless the master's journal has closed them meanwhile.
        """
        before, self._offsets = self._offsets, {}
        found = []
        for point in points:
            closed = self._offsets[point.key] = before.get(point.key, set())
            for offset in closed:
                point.ack(offset)
            if not point.is_complete:
                found.append(point)
        return found

    def note(self, point: CheckPoint, offsets: Sequence[int]) -> None:
        """Note that messages are closed for good; those of this replica's own pops are left out."""
        known = self._offsets.get(point.key)
        if known is not None:
            known.update(offsets)

    def encode(self) -> bytes:
        """Return them for the master."""
        return ClosedPopsBody(
            closed=[_message(key, offsets) for key, offsets in self._offsets.items() if offsets]
        ).encode()


def closed_by_replica(body: bytes) -> list[Acked]:
    """Decode what a replica has closed; a replica of Apache's tells nothing. Raises BodyError."""
    if not body:
        return []
    return [
        Acked(
            CheckPointKey(
                each.topic or "",
                each.consumer_group or "",
                each.queue_id,
                each.start_offset,
                each.pop_time,
                each.broker_name or "",
            ),
            tuple(each.ack_offset_list),
        )
        for each in ClosedPopsBody.decode(body).closed
    ]


def close_open(point: CheckPoint, acked: Acked) -> list[int]:
    """Close messages of a check point; return those that were open."""
    return [offset for offset in acked.offsets if offset in point.offsets and point.ack(offset)]


def _message(key: CheckPointKey, offsets: set[int]) -> BatchAckMsg:
    return BatchAckMsg(
        ack_offset_list=sorted(offsets),
        broker_name=key.broker_name,
        consumer_group=key.group,
        pop_time=key.pop_time,
        queue_id=key.queue_id,
        start_offset=key.start_offset,
        topic=key.topic,
    )
