"""Routes of the topics of a query, from the SDK's cache, and the topics of a pattern.

The SDK refreshes the routes of all topics in the background, every `rocketmq.routeRefreshInterval`. The
driver asks the name servers itself only for the first route of a topic, and at the start of a read with a
fixed end (`fresh`). It also asks at most once a second after a failed request to a broker, and while a queue
of the query is absent from the route.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Final

from rmq_client import ClientError, ClusterInfo, TopicNotFound, TopicRoute
from rmq_remoting.bodies.constants import MASTER_BROKER_ID

from ..errors import StaticTopic, TopicMissing, listed
from ..offsets import QueueKey
from ..retries import Backoff, WaitTimeouts, is_transient
from .cluster_admin import ClusterAdmin
from .retrying import attempt, with_retries

log = logging.getLogger(__name__)

# Interval of requests for routes that a failed request has put in doubt.
_DOUBT_SECONDS: Final = 1.0

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


@dataclass(frozen=True, slots=True)
class Offered:
    """What the name servers offer: readable queues in order, topics with a route, and their brokers.

    `places`: topic and broker name of each broker in the route of a topic, also without readable queues.
    """

    queues: tuple[QueueKey, ...]
    topics: frozenset[str]
    places: frozenset[tuple[str, str]]


class Routes:
    """The routes of topics. Its coroutines belong to the event loop of the SDK."""

    def __init__(
        self,
        admin: ClusterAdmin,
        namesrv: str,
        wait_timeouts: WaitTimeouts,
        refresh_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        """`clock`: seconds of a monotonic clock."""
        self._admin = admin
        self._namesrv = namesrv
        self._refresh_seconds = refresh_seconds
        self._wait_timeouts = wait_timeouts
        self._clock = clock
        self._doubtful: set[str] = set()
        self._missing: set[str] = set()
        self._asked_at: dict[str, float] = {}
        self._matching: dict[re.Pattern[str], tuple[float, list[str]]] = {}

    def doubt(self, topics: Iterable[str]) -> None:
        """Ask for the routes of these topics again: a request to a broker failed, or a queue is absent."""
        self._doubtful.update(topics)

    async def topics_matching(self, pattern: re.Pattern[str], *, fresh: bool) -> list[str]:
        """Return the topics whose whole name matches, in order, without system topics.

        Raises SourceUnavailable, ClientError.
        """
        now = self._clock()
        asked_at, known = self._matching.get(pattern, (None, []))
        age_limit = _DOUBT_SECONDS if self._doubtful.intersection(known) else self._refresh_seconds
        if asked_at is not None and not fresh and now - asked_at < age_limit:
            return known
        try:
            found = await self._list_matching(pattern, retries=asked_at is None or fresh)
        except ClientError as error:
            if not is_transient(error):
                raise
            log.warning("topics of the pattern not listed, the known ones stay in use cause=%s", error)
            found = known
        self._matching[pattern] = now, found
        return found

    async def required(self, topics: Iterable[str]) -> Offered:
        """Return the current routes of topics, all at once.

        Raises TopicMissing for a topic that no name server knows, SourceUnavailable, ClientError.
        """
        routes = await asyncio.gather(*(self._route(topic) for topic in topics))
        return self._offered(routes)

    async def offered(self, topics: Iterable[str], *, fresh: bool) -> Offered:
        """As `required`, but a topic without a route now, because no broker offers it, has no queues.

        `fresh`: ask the name servers. Raises SourceUnavailable, ClientError.
        """
        routes, _ = await attempt(topics, partial(self._route_or_none, fresh=fresh))
        return self._offered(route for route in routes.values() if route is not None)

    async def registered(self) -> ClusterInfo | None:
        """Return the brokers that the name servers know; None if the name servers do not answer."""
        try:
            return await self._admin.cluster_info()
        except ClientError as unknown:
            log.info("cannot list brokers cause=%s", unknown)
            return None

    async def masters(self, topic: str) -> set[str]:
        """Return the names of the topic's brokers that a master serves now, rather than a replica.

        None of them if the name servers do not answer. Raises ClientError.
        """
        try:
            route = await self._admin.topic_route(topic)
        except ClientError as error:
            if not is_transient(error):
                raise
            log.info("cannot tell masters from replicas topic=%s cause=%s", topic, error)
            return set()
        # A replica that acts as a master accepts no messages (Apache RocketMQ 5.3.3, RouteInfoManager).
        writable = {queue.broker_name for queue in route.write_queues}
        return {name for name in writable if MASTER_BROKER_ID in route.brokers.get(name, {})}

    async def _list_matching(self, pattern: re.Pattern[str], *, retries: bool) -> list[str]:
        admin = self._admin
        if retries:
            info = await with_retries(admin.cluster_info, self._backoff())
            topics = await with_retries(admin.topics, self._backoff())
        else:
            info, topics = await admin.cluster_info(), await admin.topics()
        own = {*info.brokers, *info.clusters}
        own |= {f"{cluster}{_REPLY_TOPIC_SUFFIX}" for cluster in info.clusters}
        return [
            topic
            for topic in topics
            if topic not in own and not _is_system(topic) and pattern.fullmatch(topic)
        ]

    async def _route_or_none(self, topic: str, *, fresh: bool) -> TopicRoute | None:
        """Return the route of a topic; None if no broker offers the topic. Retry other transient errors."""
        now = self._clock()
        in_doubt = topic in self._doubtful or topic in self._missing
        asks = fresh or (in_doubt and now - self._asked_at.get(topic, -_DOUBT_SECONDS) >= _DOUBT_SECONDS)
        if topic in self._missing and not asks:
            return None
        try:
            if not asks:
                route = await self._patiently(self._admin.known_route, topic)
            else:
                self._asked_at[topic] = now
                route = await self._refreshed(topic, fresh=fresh)
        except TopicNotFound as error:
            if topic not in self._missing:
                log.info("topic without a route, skipped until it has one topic=%s cause=%s", topic, error)
            self._missing.add(topic)
            return None
        self._missing.discard(topic)
        return route

    async def _refreshed(self, topic: str, *, fresh: bool) -> TopicRoute:
        try:
            route = await self._admin.topic_route(topic)
        except TopicNotFound:
            self._doubtful.discard(topic)
            raise
        except ClientError as error:
            if not is_transient(error):
                raise
            if fresh:
                return await self._patiently(self._admin.topic_route, topic)
            log.info("route not refreshed, the known one stays in use topic=%s cause=%s", topic, error)
            return await self._patiently(self._admin.known_route, topic)
        self._doubtful.discard(topic)
        return route

    async def _patiently(self, ask: Callable[[str], Awaitable[TopicRoute]], topic: str) -> TopicRoute:
        """Retry transient errors other than TopicNotFound, which is raised."""
        return await with_retries(partial(ask, topic), self._backoff(), raising=(TopicNotFound,))

    async def _route(self, topic: str) -> TopicRoute:
        """Return the route of a topic; retry while there is none.

        A starting broker and a new topic need some seconds to get into the route. While no broker is
        registered, a missing route says nothing about the topic.
        """
        backoff = self._backoff()
        missing_since: float | None = None
        while True:
            try:
                return await self._admin.topic_route(topic)
            except ClientError as error:
                if not is_transient(error):
                    raise
                info = await self.registered() if isinstance(error, TopicNotFound) else None
                brokers = sorted(info.brokers) if info else []
                if not brokers:
                    missing_since = None
                elif missing_since is None:
                    missing_since = self._clock()
                elif self._clock() - missing_since >= self._wait_timeouts.topic_seconds:
                    await self._fail_on_missing(topic, self._clock() - missing_since, brokers, error)
                pause = backoff.next_pause(error)
            await asyncio.sleep(min(pause, self._wait_timeouts.topic_seconds))

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

    def _backoff(self) -> Backoff:
        return Backoff(self._wait_timeouts.unavailable_seconds, self._clock)

    @staticmethod
    def _offered(routes: Iterable[TopicRoute]) -> Offered:
        """Combine routes. Raises StaticTopic."""
        known = list(routes)
        static = sorted(route.topic for route in known if route.is_static)
        if static:
            raise StaticTopic(
                f"static topics cannot be read: {listed(static)}. Their offsets are those of logical queues, "
                "which move between brokers; this connector reads the queues of brokers. Leave these topics "
                "out of the read, or read them with the SDK's consumers"
            )
        return Offered(
            tuple(sorted(queue for route in known for queue in _readable(route))),
            frozenset(route.topic for route in known),
            frozenset((route.topic, name) for route in known for name in route.brokers),
        )


def _readable(route: TopicRoute) -> list[QueueKey]:
    return [QueueKey(queue.topic, queue.broker_name, queue.queue_id) for queue in route.read_queues]


def _is_system(topic: str) -> bool:
    return topic in _SYSTEM_TOPICS or topic.startswith(_SYSTEM_PREFIXES)
