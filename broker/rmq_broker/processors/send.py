"""Requests 10, 310 and 320: a producer sends messages (Apache RocketMQ 5.3.3, SendMessageProcessor).

Each send takes the same steps: decode the header, look up the route of its target, check and plan, store and
count, answer. `sending/` has a module for each step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rmq_remoting.errors import CommandError
from rmq_remoting.headers.send_decoding import SendHeaderDecoder

from ..sending.answering import SendAnswers, waits_for_durability
from ..sending.held_sends import HeldSends
from ..sending.planning import SendPlanner
from ..sending.routes import SendRoutes
from ..sending.storing import SendStorage
from ..store.api import LogBusy, MessageRejected, StoreUnavailable
from .born_host import BORN_HOST, born_host_of
from .durable_answers import answer_when_durable

if TYPE_CHECKING:
    from rmq_remoting.answers import Answer, Result
    from rmq_remoting.bounded_cache import BoundedCache
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection
    from rmq_remoting.daemon.configuration import Change
    from rmq_remoting.headers.send import SendTarget

    from ..sending.created_topics import CreatedTopics
    from ..sending.redirection import Redirection
    from ..sending.target_check import TargetChecker
    from ..settings.broker import BrokerSettings
    from ..statistics.broker_statistics import BrokerStatistics
    from ..store.api import MessageStore

# The settings that routes, plans and answers are made from.
_SETTINGS_OF_ROUTES: Final = ("regionId", "traceOn", "startAcceptSendRequestTimeStamp", "messageTypeCheck")
# How long a send waits for the disk without fast failure.
_FOREVER_SECONDS: Final = 24 * 3600.0


class SendProcessor:
    """Stores the messages of sends, and answers where they are.

    A send for which the log has no space, because the disk is slow, waits: the loop does not.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        checker: TargetChecker,
        store: MessageStore,
        statistics: BrokerStatistics,
        store_host: bytes,
        new_unique_key: Callable[[], str],
        redirection: Redirection,
        created_topics: CreatedTopics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`store_host`: this broker's address, packed as in records. `clock` counts seconds.

        `created_topics`: those of sends, which are answered when their topic outlasts a crash.
        """
        self._settings = settings
        self._checker = checker
        self._topics = checker.topics
        self._created_topics = created_topics
        self._store = store
        self._statistics = statistics
        self._decoder = SendHeaderDecoder()
        self._routes = SendRoutes(settings, checker, store, statistics, redirection, store_host)
        self._cached_route = self._routes.cache.get
        self._planner = SendPlanner(settings, new_unique_key)
        self._storage = SendStorage(store, statistics, redirection, store_host, clock)
        self._answers = SendAnswers(settings, store, store_host)
        self._space = store.space
        self._held = HeldSends(store.space, self.send, self._refused, self._max_wait_seconds)

    @property
    def caches(self) -> tuple[BoundedCache[Any, Any], ...]:
        """The bounded caches of sends, for their metrics."""
        return (self._routes.cache, self._planner.tags_codes, *self._decoder.caches)

    def settings_changed(self, change: Change) -> None:
        """Follow a change of the broker's settings."""
        if any(key in change for key in _SETTINGS_OF_ROUTES):
            self._planner.follow_settings()
            self._answers.follow_settings()
            self._routes.cache.clear()

    def send(self, connection: Connection, request: RemotingCommand) -> Result:
        """Store one message, or the messages of a batch."""
        if self._space.is_short:
            return self._held.hold(connection, request)
        try:
            header = self._decoder.decode(request)
            target = header.target
            route = self._cached_route((target, target.queue_id))
            if route is None or route.table_version != self._topics.version:
                if target.topic not in self._topics:
                    return self._send_to_new_topic(connection, request, target)
                route = self._routes.find(target, connection.peer, request.version)
            body = request.body
            born_host = connection.attributes.get(BORN_HOST) or born_host_of(connection)
            plan = self._planner.plan(header, route, body)
            stored = self._storage.store(plan, header, route, body, born_host)
            answer = self._answers.stored(request, route, plan, stored)
        except CommandError as refusal:
            return self._answers.refused(request, refusal)
        except LogBusy:
            return self._held.hold(connection, request)
        except (StoreUnavailable, MessageRejected) as error:
            self._statistics.put_failures += 1
            return self._answers.not_stored(request, error)
        result: Result = answer
        if self._store.answers_when_durable and waits_for_durability(plan.properties):
            result = answer_when_durable(self._store, partial(self._answers.durable, answer))
        if self._created_topics.names and target.topic in self._created_topics.names:
            return self._created_topics.answer_next(target.topic, result)
        return result

    def _refused(self, request: RemotingCommand, refusal: CommandError) -> Answer:
        """Count a send that finds no space in time, and return its answer."""
        self._statistics.put_failures += 1
        return self._answers.refused(request, refusal)

    def _max_wait_seconds(self) -> float:
        settings = self._settings
        return settings.send_max_wait_ms / 1000 if settings.broker_fast_failure_enable else _FOREVER_SECONDS

    def _send_to_new_topic(
        self, connection: Connection, request: RemotingCommand, target: SendTarget
    ) -> Result:
        """Create the topic, store the message, and answer once the topic is known and on disk.

        Raises CommandError if the topic cannot be created.
        """
        self._checker.check(target, connection.peer)
        return self._created_topics.answer_first(target.topic, self.send(connection, request))
