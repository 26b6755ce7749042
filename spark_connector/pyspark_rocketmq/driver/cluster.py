"""The driver's view of a RocketMQ: topics, queues, how far they reach, and where a consumer group is.

All calls wait for their answer. Where one cannot be had now, because a server is away or busy, it is asked
for again until the timeout (SourceUnavailable), a topic that nobody knows for a shorter time (TopicMissing);
but `newest_known` and `commit` say at once who does not answer.
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

log = logging.getLogger("rmq.spark.cluster")

T = TypeVar("T")

_MAX_IN_FLIGHT: Final = 64

# Topics that brokers keep for themselves, or have from their start (Apache RocketMQ 5.3.3, TopicValidator).
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
# Each cluster has one for replies to requests (Apache RocketMQ 5.3.3, MixAll.getReplyTopic).
_REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
_SYSTEM_PREFIXES: Final = ("rmq_sys_", "RMQ_SYS_", "%RETRY%", "%DLQ%")


class Cluster:
    """A cluster, by its name servers. Used as a context manager, from one thread."""

    def __init__(
        self,
        namesrv: str,
        settings: ClientSettings,
        wait_timeouts: WaitTimeouts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: seconds that only grow."""
        self._admin = Admin(namesrv, settings=settings)
        self._namesrv = namesrv
        self._wait_timeouts = wait_timeouts
        self._clock = clock

    def open(self) -> None:
        """Begin. Raises ClientError."""
        run(self._admin.start())

    def close(self) -> None:
        """Give the connections back."""
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
        """The topics whose whole name matches a regular expression, in order; none of the brokers' own.

        Those for retries and dead letters, and what brokers call after themselves, have to be subscribed to
        by name. Raises SourceUnavailable, ClientError.
        """
        own, topics = run(self._topics())
        return [
            topic
            for topic in topics
            if topic not in own and not _is_system(topic) and pattern.fullmatch(topic)
        ]

    def queues(self, topics: Iterable[str]) -> list[QueueKey]:
        """The queues of topics that can be read, in order.

        Raises TopicMissing for one that nobody knows, SourceUnavailable, ClientError.
        """
        return run(self._queues(list(topics)))

    def queues_with_route(self, topics: Iterable[str]) -> list[QueueKey]:
        """As `queues`, but a topic that has no route now, as no broker offers it, has no queues.

        Raises SourceUnavailable, ClientError.
        """
        return run(self._queues_with_route(list(topics)))

    # --- how far queues reach ---

    def oldest(self, queues: Iterable[QueueKey]) -> QueueOffsets:
        """The offset of the oldest message of each queue. Raises SourceUnavailable, ClientError."""
        return run(self._of_each(queues, self._oldest))

    def newest(self, queues: Iterable[QueueKey]) -> QueueOffsets:
        """The offset that the next message of each queue gets. Raises SourceUnavailable, ClientError."""
        return run(self._of_each(queues, self._newest))

    def newest_reachable(
        self, queues: Iterable[QueueKey]
    ) -> tuple[QueueOffsets, dict[QueueKey, ClientError]]:
        """As `newest`, in one attempt: what could be had, and why the rest could not. Raises ClientError."""
        return run(self._newest_reachable(list(queues)))

    def served_by_master(self, queues: Iterable[QueueKey]) -> list[QueueKey]:
        """Those that a master answers for now, not a replica which may be behind. In one attempt.

        Raises ClientError.
        """
        return run(self._served_by_master(list(queues)))

    def at_times(self, times_ms: Mapping[QueueKey, int]) -> QueueOffsets:
        """The offset of each queue's first message stored at a time (ms since 1970 UTC) or later.

        The newest offset where there is no such message. Raises SourceUnavailable, ClientError.
        """

        def at_time(queue: QueueKey) -> Awaitable[int]:
            return self._admin.search_offset(_message_queue(queue), times_ms[queue])

        return run(self._of_each(times_ms, at_time))

    # --- a consumer group ---

    def committed(self, group: str, queues: Iterable[QueueKey]) -> QueueOffsets:
        """Where a group is, of the queues that it has committed. Raises SourceUnavailable, ClientError."""

        async def committed(queue: QueueKey) -> int:
            offset = await self._admin.committed_offset(group, _message_queue(queue))
            return -1 if offset is None else offset

        offsets = run(self._of_each(queues, committed))
        return QueueOffsets({queue: offset for queue, offset in offsets.items() if offset >= 0})

    def commit(self, group: str, offsets: Mapping[QueueKey, int]) -> dict[QueueKey, ClientError]:
        """Set where a group is, in one attempt; what could not be set, and why.

        Brokers refuse groups that they do not know; the first pull makes a group known, where they allow it.
        """

        async def commit(queue: QueueKey) -> None:
            await self._admin.commit_offset(group, _message_queue(queue), offsets[queue])

        return run(_attempt(offsets, commit, lambda _: True))[1]

    # --- on the loop ---

    async def _topics(self) -> tuple[set[str], list[str]]:
        info = await self._with_retries(self._admin.cluster_info)
        own = {*info.broker_addr_table, *info.cluster_addr_table}
        own |= {f"{cluster}{_REPLY_TOPIC_SUFFIX}" for cluster in info.cluster_addr_table}
        return own, await self._with_retries(self._admin.topics)

    async def _queues(self, topics: list[str]) -> list[QueueKey]:
        routes = [await self._route(topic) for topic in topics]
        return sorted(queue for route in routes for queue in _readable(route))

    async def _queues_with_route(self, topics: list[str]) -> list[QueueKey]:
        routes = [await self._with_retries(partial(self._route_or_none, topic)) for topic in topics]
        return sorted(queue for route in routes if route is not None for queue in _readable(route))

    async def _route(self, topic: str) -> TopicRoute:
        """The route, once there is one. A broker that is being started, and a topic that is being made, take
        some seconds to get into it; without any broker that a topic is missing says nothing about the topic.
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
        """The brokers that the name servers know, none where they do not answer."""
        try:
            return sorted((await self._admin.cluster_info()).broker_addr_table)
        except ClientError as unknown:
            log.info("whether brokers are there is not known: %s", unknown)
            return []

    async def _fail_on_missing(
        self, topic: str, seconds: float, brokers: list[str], error: ClientError
    ) -> None:
        """Raises TopicMissing; not where name servers do not say which topics there are."""
        try:
            topics = await self._admin.topics()
        except ClientError as unknown:
            log.info("which topics there are is not known: %s", unknown)
            return
        alike = [name for name in get_close_matches(topic, topics, n=3) if not _is_system(name)]
        meant = f"; did you mean {listed(alike)}?" if alike else "."
        raise TopicMissing(
            f"topic {topic} does not exist: the name servers {self._namesrv} have known no such topic for "
            f"{seconds:.1f} s, though they know the brokers {listed(brokers)}{meant} Correct the name, or "
            "create the topic; if its brokers are just being started, set topicTimeout to a longer time"
        ) from error

    async def _route_or_none(self, topic: str) -> TopicRoute | None:
        try:
            return await self._admin.topic_route(topic)
        except TopicNotFound as error:
            log.info("topic %s is left out for now: %s", topic, error)
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
                log.info("who answers for topic %s is not known: %s", topic, error)
                continue
            # A replica that acts as a master takes no messages (Apache RocketMQ 5.3.3, RouteInfoManager).
            writable = {queue.broker_name for queue in route.write_queues}
            masters = {name for name in writable if MASTER_BROKER_ID in route.brokers.get(name, {})}
            found += [queue for queue in queues if queue.topic == topic and queue.broker in masters]
        return found

    async def _of_each(
        self, queues: Iterable[QueueKey], ask: Callable[[QueueKey], Awaitable[int]]
    ) -> QueueOffsets:
        """What `ask` says of each queue, many side by side; those that fail are asked again together."""
        backoff = Backoff(self._wait_timeouts.unavailable_seconds, self._clock)
        known, failed = await _attempt(queues, ask)
        while failed:
            await asyncio.sleep(backoff.next_pause(next(iter(failed.values()))))
            for topic in {queue.topic for queue in failed}:
                await self._queues_with_route([topic])  # a broker may have come back at another address
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
    bears: Callable[[ClientError], bool] = is_transient,
) -> tuple[dict[QueueKey, T], dict[QueueKey, ClientError]]:
    """Ask about each queue once: the answers, and the errors that `bears` is true of. Raises all others."""
    room = asyncio.Semaphore(_MAX_IN_FLIGHT)
    answers: dict[QueueKey, T] = {}
    failed: dict[QueueKey, ClientError] = {}

    async def one(queue: QueueKey) -> None:
        async with room:
            try:
                answers[queue] = await ask(queue)
            except ClientError as error:
                if not bears(error):
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
