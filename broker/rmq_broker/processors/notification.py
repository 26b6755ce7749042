"""Notifications of messages to pop: code 200054 (Apache RocketMQ 5.3.3, NotificationProcessor)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmq_remoting.answers import Result
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.pop_queries import NotificationRequestHeader, NotificationResponseHeader

from ..delivery.waiting_requests import STILL_WAITING, Look
from ..pop.check_point import QueueKey
from ..pop.held_pops import AHEAD_MS, ANY_QUEUE
from ..pop.retry_topics import popped_retry_topics
from .pop_admission import PopAdmission, sent_at_ms

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ..clock import ClockMs
    from ..pop.service import PopService
    from ..settings.pop import PopSettings
    from ..store.api import MessageStore
    from ..topics.table import TopicTable


class NotificationProcessor:
    """Answers once there is a message to pop, or when the poll time ends."""

    def __init__(
        self,
        settings: PopSettings,
        admission: PopAdmission,
        pops: PopService,
        topics: TopicTable,
        store: MessageStore,
        now_ms: ClockMs,
    ) -> None:
        self._settings = settings
        self._admission = admission
        self._pops = pops
        self._topics = topics
        self._store = store
        self._now_ms = now_ms

    def notify(self, connection: Connection, request: RemotingCommand) -> Result:
        """Answer 200054, or hold it. Raises CommandError."""
        header = NotificationRequestHeader.decode(request.ext_fields)
        if self._look(connection, header):
            return _respond(request, has_message=True)
        now_ms = self._now_ms()
        sent_ms = sent_at_ms(header.born_time, header.poll_time_ms, now_ms)
        wait_ms = sent_ms + header.poll_time_ms - AHEAD_MS - now_ms
        if header.poll_time_ms <= 0 or wait_ms <= 0:
            return _respond(request, has_message=False)
        held = self._pops.held_notifications
        key = QueueKey(header.topic, header.consumer_group, max(header.queue_id, ANY_QUEUE))
        if not held.has_room(key):
            return _respond(request, has_message=False, is_full=True)

        def look_again(time_is_up: bool) -> Look:
            has_message = self._look(connection, header)
            if has_message:
                # Its client may be stopping, and leave the message. Then another one is notified soon.
                held.retry_next_tick(key)
            if has_message or time_is_up:
                return _respond(request, has_message=has_message)
            return STILL_WAITING

        return held.hold(connection, key, wait_ms / 1000, look_again)

    def _look(self, connection: Connection, header: NotificationRequestHeader) -> bool:
        """Tell whether there is a message to pop. Raises CommandError."""
        self._admission.check(header.consumer_group, header.topic, header.queue_id, connection.peer)
        return any(self._has_message(header, key) for key in self._queues(header))

    def _queues(self, header: NotificationRequestHeader) -> Iterator[QueueKey]:
        topic, group = header.topic, header.consumer_group
        if header.queue_id >= 0:
            yield QueueKey(topic, group, header.queue_id)
        else:
            yield from self._all_of(topic, group)
        if not header.order:
            for retry_topic in popped_retry_topics(self._settings, topic, group):
                yield from self._all_of(retry_topic, group)

    def _all_of(self, topic: str, group: str) -> Iterator[QueueKey]:
        config = self._topics.get(topic)
        for queue_id in range(0 if config is None else config.read_queue_nums):
            yield QueueKey(topic, group, queue_id)

    def _has_message(self, header: NotificationRequestHeader, key: QueueKey) -> bool:
        if header.order and self._pops.orders.is_blocked(key, header.attempt_id, 0):
            return False
        return self._store.max_offset(key.topic, key.queue_id) > self._pops.popping.start_offset(key)


def _respond(request: RemotingCommand, *, has_message: bool, is_full: bool = False) -> RemotingCommand:
    fields = NotificationResponseHeader(has_msg=has_message, polling_full=is_full).encode()
    return request.response(ResponseCode.SUCCESS, ext_fields=fields)
