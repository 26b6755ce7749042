"""Detection of queues that were deleted and created again, even if they have outgrown the stream's offset.

Offsets alone do not show this: a recreated queue that holds more messages than were read looks like one that
has grown. Store times do: within one queue, a lower offset was stored earlier. If a queue's oldest message
has an offset no higher than before, but was stored later, it belongs to another queue of the same name.

The comparison covers one run of the query. A queue that is recreated and outgrows the checkpoint while the
query is stopped is not noticed: the checkpoint has offsets only, and brokers tell neither an id nor a time of
creation of a topic (Apache RocketMQ 5.3.3, TopicConfig).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ..offsets import QueueKey
from .cluster import Cluster, QueueState

# One request per queue, so queues with traffic are not checked at every trigger.
_INTERVAL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Known:
    """A queue as last checked. Its messages up to offset `oldest` were stored at `first_stored_ms` at the
    latest.
    """

    state: QueueState
    first_stored_ms: int
    at: float


class Recreation:
    """The oldest messages of the queues of one stream, as this run has seen them."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        """`clock`: seconds of a monotonic clock."""
        self._cluster = cluster
        self._clock = clock
        self._known: dict[QueueKey, _Known] = {}

    def recreated(self, states: Mapping[QueueKey, QueueState]) -> list[QueueKey]:
        """Return the queues that were recreated since the last check of each. Raises ClientError.

        A queue is checked if it has changed, at most every 10 seconds, and at once if its offsets are lower.
        """
        now = self._clock()
        due = [queue for queue, state in states.items() if self._is_due(queue, state, now)]
        first_stored_ms = self._cluster.first_stored_ms(due) if due else {}
        suspects = [queue for queue, at_ms in first_stored_ms.items() if self._is_later(queue, at_ms)]
        # The oldest message may have expired between the two requests: compare with an offset told later.
        confirmed, _ = self._cluster.states(suspects) if suspects else ({}, {})
        found = [
            queue for queue, state in confirmed.items() if state.oldest <= self._known[queue].state.oldest
        ]
        for queue, at_ms in first_stored_ms.items():
            self._known[queue] = _Known(states[queue], at_ms, now)
        return found

    def _is_due(self, queue: QueueKey, state: QueueState, now: float) -> bool:
        known = self._known.get(queue)
        if known is None:
            return state.newest > state.oldest
        if state.newest < known.state.newest or state.oldest < known.state.oldest:
            return True
        return state != known.state and now - known.at >= _INTERVAL_SECONDS

    def _is_later(self, queue: QueueKey, first_stored_ms: int) -> bool:
        known = self._known.get(queue)
        return known is not None and first_stored_ms > known.first_stored_ms
