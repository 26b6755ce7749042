"""The driver's view of a RocketMQ cluster: topics, queues, their offsets, and a consumer group's offsets.

All calls block until they have an answer. Transient failures (a server is down or busy) are retried until the
timeout (SourceUnavailable); a topic unknown to every name server has a shorter timeout (TopicMissing). The
methods `states`, `first_stored_ms`, `served_by_master` and `commit` make one attempt; `states` and `commit`
also return the error of each queue.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Final, Self

from rmq_client import ClientError, ClientSettings, MessageQueue, RouteError
from rmq_client import QueueOffsets as StoredOffsets

from ..offsets import QueueKey, QueueOffsets
from ..retries import Backoff, WaitTimeouts
from .cluster_admin import ClusterAdmin, run
from .retrying import attempt
from .routes import Offered, Routes

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class QueueState:
    """The offsets of a queue's oldest and next message, and when the last message was stored.

    `last_stored_ms`: ms since 1970 UTC; 0 or less for a queue without messages.
    """

    oldest: int
    newest: int
    last_stored_ms: int = 0


class Cluster:
    """A cluster, found through its name servers. Use it as a context manager, from one thread."""

    def __init__(
        self,
        namesrv: str,
        settings: ClientSettings,
        wait_timeouts: WaitTimeouts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: seconds of a monotonic clock."""
        self._admin = ClusterAdmin(namesrv, settings=settings)
        self._routes = Routes(self._admin, namesrv, wait_timeouts, settings.route_refresh_seconds, clock)
        self._wait_timeouts = wait_timeouts
        self._clock = clock

    def open(self) -> None:
        """Start the admin client. Raises ClientError."""
        run(self._admin.start())

    def close(self) -> None:
        """Close the connections."""
        run(self._admin.stop())

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- topics and queues ---

    def topics_matching(self, pattern: re.Pattern[str], *, fresh: bool = True) -> list[str]:
        """Return the topics whose whole name matches a regular expression, in order, without system topics.

        Retry topics, dead-letter topics, and topics that brokers name after themselves must be subscribed to
        by name. `fresh`: ask now; otherwise at most once per `rocketmq.routeRefreshInterval`. Raises
        SourceUnavailable, ClientError.
        """
        return run(self._routes.topics_matching(pattern, fresh=fresh))

    def queues(self, topics: Iterable[str]) -> list[QueueKey]:
        """Return the readable queues of topics, in order.

        Raises TopicMissing for a topic that no name server knows, StaticTopic, SourceUnavailable,
        ClientError.
        """
        return list(run(self._routes.required(list(topics))).queues)

    def offered(self, topics: Iterable[str], *, fresh: bool = False) -> Offered:
        """Return what the name servers offer of these topics. A topic may have no route now.

        Routes come from the cache unless a request failed; `fresh`: ask now. Raises StaticTopic,
        SourceUnavailable, ClientError.
        """
        return run(self._routes.offered(list(topics), fresh=fresh))

    def doubt(self, topics: Iterable[str]) -> None:
        """Let the next call of `offered` ask for the routes of these topics, at most once a second."""
        self._routes.doubt(topics)

    def registered_brokers(self) -> frozenset[str] | None:
        """Return the brokers that the name servers know; None if the name servers do not answer."""
        info = run(self._routes.registered())
        return None if info is None else frozenset(info.brokers)

    # --- offsets of queues ---

    def oldest(self, queues: Iterable[QueueKey]) -> QueueOffsets:
        """Return the offset of the oldest message of each queue. Raises SourceUnavailable, ClientError."""
        states = run(self._all_states(list(queues)))
        return QueueOffsets({queue: state.oldest for queue, state in states.items()})

    def newest(self, queues: Iterable[QueueKey]) -> QueueOffsets:
        """Return the offset of the next message of each queue. Raises SourceUnavailable, ClientError."""
        states = run(self._all_states(list(queues)))
        return QueueOffsets({queue: state.newest for queue, state in states.items()})

    def states(
        self, queues: Iterable[QueueKey]
    ) -> tuple[dict[QueueKey, QueueState], dict[QueueKey, ClientError]]:
        """Return the states of queues in one attempt, and the errors of the queues without an answer.

        One request for each topic and broker, all at once. Raises ClientError for errors that are not
        transient.
        """
        return run(self._states(list(queues)))

    def first_stored_ms(self, queues: Iterable[QueueKey]) -> dict[QueueKey, int]:
        """Return the store time of each queue's oldest message in ms since 1970 UTC, in one attempt.

        Queues without messages, and those whose broker does not answer, are missing. Raises ClientError.
        """

        async def first(queue: QueueKey) -> int:
            return _ms(await self._admin.earliest_time(_message_queue(queue)))

        known, _ = run(attempt(queues, first))
        return {queue: at_ms for queue, at_ms in known.items() if at_ms > 0}

    def served_by_master(self, queues: Iterable[QueueKey]) -> list[QueueKey]:
        """Return the queues whose master serves them now, rather than a replica that may lag. One attempt.

        Raises ClientError.
        """
        return run(self._served_by_master(list(queues)))

    def at_times(self, times_ms: Mapping[QueueKey, int]) -> QueueOffsets:
        """Return the offset of each queue's first message stored at a time (ms since 1970 UTC) or later.

        If there is no such message, that is the newest offset. Raises SourceUnavailable, ClientError.
        """

        def at_time(queue: QueueKey) -> Awaitable[int]:
            return self._admin.search_offset(_message_queue(queue), _time_of(times_ms[queue]))

        return run(self._of_each(times_ms, at_time))

    # --- a consumer group ---

    def committed(self, group: str, queues: Iterable[QueueKey]) -> QueueOffsets:
        """Return the offsets that a group has committed. Raises SourceUnavailable, ClientError."""

        async def committed(queue: QueueKey) -> int:
            offset = await self._admin.committed_offset(group, _message_queue(queue))
            return -1 if offset is None else offset

        offsets = run(self._of_each(queues, committed))
        return QueueOffsets({queue: offset for queue, offset in offsets.items() if offset >= 0})

    def commit(self, group: str, offsets: Mapping[QueueKey, int]) -> dict[QueueKey, ClientError]:
        """Commit offsets for a group, in one attempt. Return the errors of the queues that failed.

        Brokers reject groups that they do not know. The first pull makes a group known, if the broker allows
        it.
        """

        async def commit(queue: QueueKey) -> None:
            await self._admin.commit_offset(group, _message_queue(queue), offsets[queue])

        return run(attempt(offsets, commit, lambda _: True))[1]

    # --- on the event loop ---

    async def _states(
        self, queues: Iterable[QueueKey]
    ) -> tuple[dict[QueueKey, QueueState], dict[QueueKey, ClientError]]:
        wanted: dict[tuple[str, str], list[QueueKey]] = defaultdict(list)
        for queue in queues:
            wanted[queue.topic, queue.broker].append(queue)

        async def ask(place: tuple[str, str]) -> dict[MessageQueue, StoredOffsets]:
            return await self._admin.topic_stats(place[0], broker_name=place[1])

        answers, failed_places = await attempt(wanted, ask)
        known: dict[QueueKey, QueueState] = {}
        failed: dict[QueueKey, ClientError] = {}
        for place, members in wanted.items():
            table = answers.get(place, {})
            for queue in members:
                at = table.get(_message_queue(queue))
                if at is not None:
                    known[queue] = QueueState(at.min_offset, at.max_offset, _ms(at.last_stored))
                else:
                    failed[queue] = failed_places.get(place) or RouteError(f"its broker has no queue {queue}")
        self._routes.doubt({queue.topic for queue in failed})
        return known, failed

    async def _all_states(self, queues: list[QueueKey]) -> dict[QueueKey, QueueState]:
        """Return the state of each queue; retry the queues that fail together."""
        backoff = Backoff(self._wait_timeouts.unavailable_seconds, self._clock)
        known, failed = await self._states(queues)
        while failed:
            await asyncio.sleep(backoff.next_pause(next(iter(failed.values()))))
            await self._look_up_again(failed)
            more, failed = await self._states(failed)
            known.update(more)
        return known

    async def _served_by_master(self, queues: list[QueueKey]) -> list[QueueKey]:
        masters = {topic: await self._routes.masters(topic) for topic in {queue.topic for queue in queues}}
        return [queue for queue in queues if queue.broker in masters[queue.topic]]

    async def _of_each(
        self, queues: Iterable[QueueKey], ask: Callable[[QueueKey], Awaitable[int]]
    ) -> QueueOffsets:
        """Call `ask` for each queue, many at a time; retry the queues that fail together."""
        backoff = Backoff(self._wait_timeouts.unavailable_seconds, self._clock)
        known, failed = await attempt(queues, ask)
        while failed:
            await asyncio.sleep(backoff.next_pause(next(iter(failed.values()))))
            await self._look_up_again(failed)
            more, failed = await attempt(failed, ask)
            known.update(more)
        return QueueOffsets(known)

    async def _look_up_again(self, failed: Iterable[QueueKey]) -> None:
        """Ask for routes again: a broker may be back at another address."""
        await self._routes.offered({queue.topic for queue in failed}, fresh=True)


def _message_queue(queue: QueueKey) -> MessageQueue:
    return MessageQueue(queue.topic, queue.broker, queue.queue_id)


def _time_of(time_ms: int) -> datetime:
    """Return ms since 1970 UTC as a time; beyond the range of datetime, the last one of it."""
    try:
        return _EPOCH + timedelta(milliseconds=max(0, time_ms))
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _ms(at: datetime | None) -> int:
    """Return a time in ms since 1970 UTC; 0 for None."""
    return 0 if at is None else round(at.timestamp() * 1000)
