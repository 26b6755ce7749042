"""One run of a query: its progress, batch by batch, and the resulting lag."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from ..offsets import QueueKey
from .arrival_times import ArrivalTimes
from .progress import Progress
from .reports import QueryLag, QueueLag, TopicLag

# Arrival times known to within this are not requested from brokers.
_UNCERTAIN_SECONDS: Final = 10.0


class RunLag:
    """Lag from the first progress report of a run to its end. The caller serializes access."""

    def __init__(self, query_id: str, run_id: str, name: str | None, first: Progress) -> None:
        self.query_id = query_id
        self.run_id = run_id
        self.name = name
        self.heard_at = 0.0
        self.requested_at: float | None = None
        self._arrivals: dict[QueueKey, ArrivalTimes] = {}
        self._rows = 0
        self._last = first

    def progressed(self, progress: Progress, at: float) -> None:
        """Record the end of a batch, reported at `at` (seconds since 1970 UTC)."""
        self.heard_at = at
        self._last = progress
        self._rows += progress.rows
        # A queue whose broker is down keeps its observations.
        known = {queue: self._arrivals.get(queue) or ArrivalTimes() for queue in progress.ends}
        for queue, newest in progress.newest.items():
            if queue in known:
                known[queue].observe(newest, progress.at)
        for queue, end in progress.ends.items():
            known[queue].forget_before(end)
        self._arrivals = known

    def idled(self, triggered_at: float, at: float) -> None:
        """Record a trigger at `triggered_at` without work, reported at `at` (seconds since 1970 UTC)."""
        self.heard_at = at
        for queue, end in self._last.ends.items():
            arrivals = self._arrivals[queue]
            # Queues with a backlog had messages: their broker is down, or there were too few for a batch.
            if arrivals.newest is not None and arrivals.newest <= end:
                arrivals.observe_unchanged(triggered_at)

    def uncertain(self, most: int) -> list[tuple[QueueKey, int]]:
        """Return queue and offset of the oldest unread messages whose age is uncertain.

        Only the `most` queues with the largest lag are considered.
        """
        wanted = [
            (newest - end, queue, end)
            for queue, end, newest in self._behind()
            if (arrival := self._arrivals[queue].arrival_of(end)) is not None
            and arrival.open_seconds > _UNCERTAIN_SECONDS
        ]
        wanted.sort(reverse=True)
        return [(queue, end) for _, queue, end in wanted[:most]]

    def set_store_time(self, queue: QueueKey, offset: int, at: float) -> None:
        """Record the store time of a message as told by a broker (seconds since 1970 UTC)."""
        arrivals = self._arrivals.get(queue)
        if arrivals is None:  # the queue has left the query
            return
        # If the query has read the message by now, its time still bounds those of the next ones.
        arrivals.set_store_time(offset, at)
        arrivals.forget_before(self._last.ends[queue])

    def report(self, now: float) -> QueryLag:
        """Return the lag after the last batch, with ages as of now (seconds since 1970 UTC)."""
        last = self._last
        queues = sorted(self._queues(now), key=lambda lag: lag.queue)
        return QueryLag(
            query_id=self.query_id,
            run_id=self.run_id,
            name=self.name,
            batch_id=last.batch_id,
            batch_seconds=last.batch_seconds,
            rows=self._rows,
            input_rows_per_second=last.input_rows_per_second,
            processed_rows_per_second=last.processed_rows_per_second,
            heard_at=self.heard_at,
            topics=tuple(
                _of_topic(topic, tuple(lags)) for topic, lags in groupby(queues, lambda lag: lag.queue.topic)
            ),
            losses=tuple(sorted(last.losses.values(), key=lambda loss: loss.queue)),
        )

    def _queues(self, now: float) -> Iterable[QueueLag]:
        for queue, end, newest in self._behind():
            arrival = self._arrivals[queue].arrival_of(end)
            if arrival is None:
                yield QueueLag(queue, 0, 0.0, at_least=False)
            else:
                yield QueueLag(queue, newest - end, max(0.0, now - arrival.at), arrival.at_least)

    def _behind(self) -> Iterable[tuple[QueueKey, int, int]]:
        """Yield the queue, the query's offset and the end of the queue, for queues whose end is known."""
        for queue, end in self._last.ends.items():
            newest = self._arrivals[queue].newest
            if newest is not None:
                yield queue, end, newest


def _of_topic(topic: str, queues: tuple[QueueLag, ...]) -> TopicLag:
    return TopicLag(
        topic,
        messages=sum(lag.messages for lag in queues),
        seconds=max(lag.seconds for lag in queues),
        at_least=any(lag.at_least for lag in queues),
        queues=queues,
    )
