"""One run of a query: what its progress says, batch by batch, and the lag that follows from it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from ..offsets import QueueKey
from .arrival_times import ArrivalTimes
from .progress import Progress
from .reports import QueryLag, QueueLag, TopicLag

# What is known to so many seconds is not asked for.
_UNCERTAIN_SECONDS: Final = 10.0


class RunLag:
    """From its first progress to its end. The caller sees to it that one thread at a time uses it."""

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
        """A batch has ended; heard of at `at` (seconds since 1970 UTC)."""
        self.heard_at = at
        self._last = progress
        self._rows += progress.rows
        # A queue whose broker is away keeps what was known of it.
        known = {queue: self._arrivals.get(queue) or ArrivalTimes() for queue in progress.ends}
        for queue, newest in progress.newest.items():
            if queue in known:
                known[queue].observe(newest, progress.at)
        for queue, end in progress.ends.items():
            known[queue].forget_before(end)
        self._arrivals = known

    def idled(self, triggered_at: float, at: float) -> None:
        """A trigger at `triggered_at` had nothing to do; heard of at `at` (seconds since 1970 UTC)."""
        self.heard_at = at
        for queue, end in self._last.ends.items():
            arrivals = self._arrivals[queue]
            # Of the others there was something: a broker is away, or too little for a batch.
            if arrivals.newest is not None and arrivals.newest <= end:
                arrivals.observe_unchanged(triggered_at)

    def uncertain(self, most: int) -> list[tuple[QueueKey, int]]:
        """The oldest unread messages whose age is not known well: of the `most` queues furthest behind."""
        wanted = [
            (newest - end, queue, end)
            for queue, end, newest in self._behind()
            if (arrival := self._arrivals[queue].arrival_of(end)) is not None
            and arrival.open_seconds > _UNCERTAIN_SECONDS
        ]
        wanted.sort(reverse=True)
        return [(queue, end) for _, queue, end in wanted[:most]]

    def set_store_time(self, queue: QueueKey, offset: int, at: float) -> None:
        """A broker says when a message was stored (seconds since 1970 UTC)."""
        arrivals = self._arrivals.get(queue)
        if arrivals is None:  # it has left the query
            return
        # Where the query is past it by now, it still narrows down when the next ones came.
        arrivals.set_store_time(offset, at)
        arrivals.forget_before(self._last.ends[queue])

    def report(self, now: float) -> QueryLag:
        """The lag as of the last batch, with ages as of now (seconds since 1970 UTC)."""
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
        )

    def _queues(self, now: float) -> Iterable[QueueLag]:
        for queue, end, newest in self._behind():
            arrival = self._arrivals[queue].arrival_of(end)
            if arrival is None:
                yield QueueLag(queue, 0, 0.0, at_least=False)
            else:
                yield QueueLag(queue, newest - end, max(0.0, now - arrival.at), arrival.at_least)

    def _behind(self) -> Iterable[tuple[QueueKey, int, int]]:
        """Queue, where the query is, and where the queue ends, as far as that is known."""
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
