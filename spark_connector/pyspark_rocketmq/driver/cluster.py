"""The driver's view of a RocketMQ cluster: topics, queues, their offsets, and a consumer group's offsets.

All calls block until they have an answer. Transient failures (a server is down or busy) are retried until the
timeout (SourceUnavailable); a topic unknown to every name server has a shorter timeout (TopicMissing). The
methods `newest_reachable`, `served_by_master` and `commit` make one attempt; `newest_reachable` and `commit`
also return the error of each queue.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

from rmq_client import Admin, ClientError, ClientSettings, MessageQueue, TopicNotFound, TopicRoute
from rmq_client.blocking import run
from rmq_remoting.bodies.route import MASTER_BROKER_ID

from ..errors import TopicMissing, listed
from ..offsets import QueueKey, QueueOffsets
from ..retries import Backoff, WaitTimeouts, is_transient

log = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_IN_FLIGHT: Final = 64

# Topics that brokers reserve or create at start (Apache RocketMQ 5.3.3, TopicValidator).
_SYSTEM_TOPICS: Final = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
# Each cluster has a topic for replies to requests (Apache RocketMQ 5.3.3, MixAll.getReplyTopic).
_REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
_SYSTEM_PREFIXES: Final = ("rmq_sys_", "RMQ_SYS_", "%RETRY%", "%DLQ%")


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
        self._admin = Admin(namesrv, settings=settings)
        self._namesrv = namesrv
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

    def topics_matching(self, pattern: re.Pattern[str]) -> list[str]:
        """Return the topics whose whole name matches a regular expression, in order, without system topics.

        Retry topics, dead-letter topics, and topics that brokers name after themselves must be subscribed to
        by name. Raises SourceUnavailable, ClientError.
        """
        own, topics = run(self._topics())
        return [
            topic
            for topic in topics
            if topic not in own and not _is_system(topic) and pattern.fullmatch(topic)
        ]

    def queues(self, topics: Iterable[str]) -> list[QueueKey]:
        """Return the readable queues of topics, in order.

        Raises TopicMissing for a topic that no name server knows, SourceUnavailable, ClientError.
        """
        return run(self._queues(list(topics)))

    def queues_with_route(self, topics: Iterable[str]) -> list[QueueKey]:
        """As `queues`, but a topic without a route now, because no broker offers it, has no queues.

        Raises SourceUnavailable, ClientError.
        """
        return run(self._queues_with_route(list(topics)))

    # --- offsets of queues ---

    def oldest(self, queues: Iterable[QueueKey]) -> QueueOffsets:
        """Return the offset of the oldest message of each queue. Raises SourceUnavailable, ClientError."""
        return run(self._of_each(queues, self._oldest))

    def newest(self, queues: Iterable[QueueKey]) -> QueueOffsets:
        """Return the offset of the next message of each queue. Raises SourceUnavailable, ClientError."""
        return run(self._of_each(queues, self._newest))

    def newest_reachable(
        self, queues: Iterable[QueueKey]
    ) -> tuple[QueueOffsets, dict[QueueKey, ClientError]]:
        """As `newest`, in one attempt: the offsets of the queues that answered, and the errors of the others.

        Raises ClientError for errors that are not transient.
        """
        return run(self._newest_reachable(list(queues)))

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
            return self._admin.search_offset(_message_queue(queue), times_ms[queue])

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

        return run(_attempt(offsets, commit, lambda _: True))[1]

    # --- on the event loop ---

    async def _topics(self) -> tuple[set[str], list[str]]:
        info = await self._with_retries(self._admin.cluster_info)
        own = {*info.brokers, *info.clusters}
        own |= {f"{cluster}{_REPLY_TOPIC_SUFFIX}" for cluster in info.clusters}
        return own, await self._with_retries(self._admin.topics)

    async def _queues(self, topics: list[str]) -> list[QueueKey]:
        routes = [await self._route(topic) for topic in topics]
        return sorted(queue for route in routes for queue in _readable(route))

    async def _queues_with_route(self, topics: list[str]) -> list[QueueKey]:
        routes = [await self._with_retries(partial(self._route_or_none, topic)) for topic in topics]
        return sorted(queue for route in routes if route is not None for queue in _readable(route))

    async def _route(self, topic: str) -> TopicRoute:
        """Return the route of a topic; retry while there is none.

        A starting broker and a new topic need some seconds to get into the route. While no broker is
        registered, a missing route says nothing about the topic.
        """
        backoff = Backoff(self._wait_timeouts.unavailable_seconds, self._clock)
        missing_since: float | None = None
        while True:
            try:
                return await self._admin.topic_route(topic)
            except ClientError as error:
                if not is_transient(error):
                    raise
                brokers = await self._brokers() if isinstance(error, TopicNotFound) else []
                if not brokers:
                    missing_since = None
                elif missing_since is None:
                    missing_since = self._clock()
                elif self._clock() - missing_since >= self._wait_timeouts.topic_seconds:
                    await self._fail_on_missing(topic, self._clock() - missing_since, brokers, error)
                pause = backoff.next_pause(error)
            await asyncio.sleep(min(pause, self._wait_timeouts.topic_seconds))

    async def _brokers(self) -> list[str]:
        """Return the brokers that the name servers know; none if the name servers do not answer."""
        try:
            return sorted((await self._admin.cluster_info()).brokers)
        except ClientError as unknown:
            log.info("cannot list brokers, retrying the route cause=%s", unknown)
            return []

    async def _fail_on_missing(
        self, topic: str, seconds: float, brokers: list[str], error: ClientError
    ) -> None:
        """Raise TopicMissing, unless the name servers do not answer which topics exist."""
        try:
            topics = await self._admin.topics()
        except ClientError as unknown:
            log.info("cannot list topics, retrying the route of topic=%s cause=%s", topic, unknown)
            return
        alike = [name for name in get_close_matches(topic, topics, n=3) if not _is_system(name)]
        meant = f"; did you mean {listed(alike)}?" if alike else "."
        raise TopicMissing(
            f"topic {topic} does not exist: the name servers {self._namesrv} have not known it for "
            f"{seconds:.1f} s, while they know the brokers {listed(brokers)}{meant} Correct the name, or "
            "create the topic; if its brokers are still starting, set topicTimeout to a longer time"
        ) from error

    async def _route_or_none(self, topic: str) -> TopicRoute | None:
        try:
            return await self._admin.topic_route(topic)
        except TopicNotFound as error:
            log.info("topic without a route, skipped in this batch topic=%s cause=%s", topic, error)
            return None

    async def _oldest(self, queue: QueueKey) -> int:
        return max(0, await self._admin.min_offset(_message_queue(queue)))

    def _newest(self, queue: QueueKey) -> Awaitable[int]:
        return self._admin.max_offset(_message_queue(queue))

    async def _newest_reachable(
        self, queues: list[QueueKey]
    ) -> tuple[QueueOffsets, dict[QueueKey, ClientError]]:
        known, failed = await _attempt(queues, self._newest)
        return QueueOffsets(known), failed

    async def _served_by_master(self, queues: list[QueueKey]) -> list[QueueKey]:
        found: list[QueueKey] = []
        for topic in sorted({queue.topic for queue in queues}):
            try:
                route = await self._admin.topic_route(topic)
            except ClientError as error:
                if not is_transient(error):
                    raise
                log.info("cannot tell masters from replicas topic=%s cause=%s", topic, error)
                continue
            # A replica that acts as a master accepts no messages (Apache RocketMQ 5.3.3, RouteInfoManager).
            writable = {queue.broker_name for queue in route.write_queues}
            masters = {name for name in writable if MASTER_BROKER_ID in route.brokers.get(name, {})}
            found += [queue for queue in queues if queue.topic == topic and queue.broker in masters]
        return found

    async def _of_each(
        self, queues: Iterable[QueueKey], ask: Callable[[QueueKey], Awaitable[int]]
    ) -> QueueOffsets:
        """Call `ask` for each queue, many at a time; retry the queues that fail together."""
        backoff = Backoff(self._wait_timeouts.unavailable_seconds, self._clock)
        known, failed = await _attempt(queues, ask)
        while failed:
            await asyncio.sleep(backoff.next_pause(next(iter(failed.values()))))
            for topic in {queue.topic for queue in failed}:
                await self._queues_with_route([topic])  # a broker may be back at another address
            more, failed = await _attempt(failed, ask)
            known.update(more)
        return QueueOffsets(known)

    async def _with_retries(self, ask: Callable[[], Awaitable[T]]) -> T:
        backoff = Backoff(self._wait_timeouts.unavailable_seconds, self._clock)
        while True:
            try:
                return await ask()
            except ClientError as error:
                if not is_transient(error):
                    raise
                await asyncio.sleep(backoff.next_pause(error))


async def _attempt(
    queues: Iterable[QueueKey],
    ask: Callable[[QueueKey], Awaitable[T]],
    tolerates: Callable[[ClientError], bool] = is_transient,
) -> tuple[dict[QueueKey, T], dict[QueueKey, ClientError]]:
    """Call `ask` once for each queue. Return the answers, and the errors for which `tolerates` is true.

    Raises every other error.
    """
    room = asyncio.Semaphore(_MAX_IN_FLIGHT)
    answers: dict[QueueKey, T] = {}
    failed: dict[QueueKey, ClientError] = {}

    async def one(queue: QueueKey) -> None:
        async with room:
            try:
                answers[queue] = await ask(queue)
            except ClientError as error:
                if not tolerates(error):
                    raise
                failed[queue] = error

    await asyncio.gather(*(one(queue) for queue in queues))
    return answers, failed


def _readable(route: TopicRoute) -> list[QueueKey]:
    return [QueueKey(queue.topic, queue.broker_name, queue.queue_id) for queue in route.read_queues]


def _message_queue(queue: QueueKey) -> MessageQueue:
    return MessageQueue(queue.topic, queue.broker, queue.queue_id)


def _is_system(topic: str) -> bool:
    return topic in _SYSTEM_TOPICS or topic.startswith(_SYSTEM_PREFIXES)
