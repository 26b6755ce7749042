"""Notifications of messages to pop: code 200054 (Apache RocketMQ 5.3.3, NotificationProcessor)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from rmq_remoting.answers import Answer, Eventual
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.pop_queries import NotificationRequestHeader, NotificationResponseHeader

from ..delivery.turns import ITEMS_PER_SLICE
from ..delivery.waiting_requests import STILL_WAITING, Look, LookResult, held_bytes
from ..pop.check_point import QueueKey
from ..pop.held_pops import AHEAD_MS, ANY_QUEUE
from ..pop.retry_topics import popped_retry_topics
from ..pop.walk import PAUSE
from .pop_admission import PopAdmission, sent_at_ms

if TYPE_CHECKING:
    import asyncio

    from rmq_remoting.connection import Connection

    from ..clock import ClockMs
    from ..pop.service import PopService
    from ..pop.walk import Walk
    from ..settings.pop import PopSettings
    from ..store.api import MessageStore
    from ..topics.table import TopicTable
    from .pop_walks import QueueWalks


_R = TypeVar("_R", Answer, LookResult)


@dataclass(slots=True, eq=False)
class _Look:
    """One look for a message, and its outcome."""

    connection: Connection
    header: NotificationRequestHeader
    has_message: bool = False


class NotificationProcessor:
    """Answers once there is a message to pop, or when the poll time ends."""

    def __init__(
        self,
        settings: PopSettings,
        admission: PopAdmission,
        pops: PopService,
        topics: TopicTable,
        store: MessageStore,
        walks: QueueWalks,
        now_ms: ClockMs,
    ) -> None:
        self._settings = settings
        self._admission = admission
        self._pops = pops
        self._topics = topics
        self._store = store
        self._walks = walks
        self._now_ms = now_ms

    def notify(self, connection: Connection, request: RemotingCommand) -> Eventual:
        """Answer 200054, or hold it. Raises CommandError."""
        look = _Look(connection, NotificationRequestHeader.decode(request.ext_fields))
        entries_end = self._store.entries_end

        def conclude() -> Eventual:
            if look.has_message:
                return _respond(request, has_message=True)
            return self._hold(request, look, is_outdated=self._store.entries_end != entries_end)

        return self._walk(look, conclude)

    def _hold(self, request: RemotingCommand, look: _Look, *, is_outdated: bool) -> Eventual:
        """Hold a request without a message; `is_outdated`: some were stored during its walk."""
        connection, header, now_ms = look.connection, look.header, self._now_ms()
        sent_ms = sent_at_ms(header.born_time, header.poll_time_ms, now_ms)
        wait_ms = sent_ms + header.poll_time_ms - AHEAD_MS - now_ms
        if header.poll_time_ms <= 0 or wait_ms <= 0:
            return _respond(request, has_message=False)
        held = self._pops.held_notifications
        key = QueueKey(header.topic, header.consumer_group, max(header.queue_id, ANY_QUEUE))
        if not held.has_room(connection, request, key):
            return _respond(request, has_message=False, is_full=True)

        def look_again(time_is_up: bool) -> Look:
            again = _Look(connection, header)

            def conclude() -> LookResult:
                if again.has_message:
                    # Its client may be stopping, and leave the message. Then another one is notified soon.
                    held.retry_next_tick(key)
                if again.has_message or time_is_up:
                    return _respond(request, has_message=again.has_message)
                return STILL_WAITING

            return self._walk(again, conclude)

        future = held.hold(connection, key, wait_ms / 1000, look_again, held_bytes(request))
        if is_outdated:
            held.wake(key)
        return future

    # --- looking for a message ---

    def _walk(self, look: _Look, conclude: Callable[[], _R | asyncio.Future[_R]]) -> _R | asyncio.Future[_R]:
        """Look for a message to pop, and return what `conclude` returns then. Raises CommandError."""
        header, peer = look.header, look.connection.peer

        def check() -> None:
            self._admission.check(header.consumer_group, header.topic, header.queue_id, peer)

        check()
        return self._walks.finish(look.connection, self._steps(look), check, conclude)

    def _steps(self, look: _Look) -> Walk:
        header = look.header
        topic, group = header.topic, header.consumer_group
        if header.queue_id >= 0:
            look.has_message = self._has_message(header, QueueKey(topic, group, header.queue_id))
        else:
            yield from self._walk_topic(look, topic)
        if not header.order:
            for retry_topic in popped_retry_topics(self._settings, topic, group):
                yield from self._walk_topic(look, retry_topic)

    def _walk_topic(self, look: _Look, topic: str) -> Walk:
        config = self._topics.get(topic)
        for queue_id in range(0 if config is None else config.read_queue_nums):
            if look.has_message:
                return
            if queue_id and queue_id % ITEMS_PER_SLICE == 0:
                yield PAUSE
            key = QueueKey(topic, look.header.consumer_group, queue_id)
            look.has_message = self._has_message(look.header, key)

    def _has_message(self, header: NotificationRequestHeader, key: QueueKey) -> bool:
        if header.order and self._pops.orders.is_blocked(key, header.attempt_id, 0):
            return False
        return self._store.max_offset(key.topic, key.queue_id) > self._pops.popping.start_offset(key)


def _respond(request: RemotingCommand, *, has_message: bool, is_full: bool = False) -> RemotingCommand:
    fields = NotificationResponseHeader(has_msg=has_message, polling_full=is_full).encode()
    return request.response(ResponseCode.SUCCESS, ext_fields=fields)
