"""Pops: codes 200050 and 200055 (Apache RocketMQ 5.3.3, PopMessageProcessor, PollingInfoProcessor)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from rmq_remoting.answers import Answer, Eventual
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader
from rmq_remoting.headers.pop_queries import PollingInfoRequestHeader, PollingInfoResponseHeader

from ..clients.parsed_subscriptions import ParsedSubscriptions
from ..delivery.waiting_requests import STILL_WAITING, Look, LookResult, held_bytes
from ..pop.check_point import QueueKey
from ..pop.held_pops import AHEAD_MS, ANY_QUEUE
from ..pop.popping import Pop, Read
from ..store.api import ColdRead, GetResult, GetStatus
from .pop_admission import PopAdmission, sent_at_ms
from .pop_walks import QueueWalks

if TYPE_CHECKING:
    import asyncio

    from rmq_remoting.connection import Connection

    from ..clock import ClockMs
    from ..filtering.message_filters import MessageFilters
    from ..pop.service import PopService
    from ..store.api import MessageStore

# A pop that arrives this long after its client has stopped waiting is refused.
_TOO_LATE_MS: Final = 500

_R = TypeVar("_R", Answer, LookResult)


@dataclass(slots=True, eq=False)
class _PopRequest:
    """One request to pop."""

    connection: Connection
    command: RemotingCommand
    header: PopMessageRequestHeader
    key: QueueKey  # what it pops from, and what it waits for
    ends_at_ms: int  # when its client stops waiting


class PopProcessor:
    """Answers pops with messages, or holds them until there are some."""

    def __init__(
        self,
        admission: PopAdmission,
        pops: PopService,
        store: MessageStore,
        walks: QueueWalks,
        filters: MessageFilters,
        now_ms: ClockMs,
    ) -> None:
        self._filters = filters
        self._parsed = ParsedSubscriptions()
        self._admission = admission
        self._pops = pops
        self._store = store
        self._walks = walks
        self._now_ms = now_ms
        self.caches = self._parsed.caches

    # --- popping ---

    def pop(self, connection: Connection, command: RemotingCommand) -> Eventual:
        """Answer 200050 with messages, or hold it. Raises CommandError."""
        if connection.is_closed:
            return None  # messages popped now would be invisible, and nobody would have them
        header = PopMessageRequestHeader.decode(command.ext_fields)
        now_ms = self._now_ms()
        sent_ms = sent_at_ms(header.born_time, header.poll_time_ms, now_ms)
        if now_ms - sent_ms - header.poll_time_ms > _TOO_LATE_MS:
            raise CommandError(
                ResponseCode.POLLING_TIMEOUT,
                f"the pop is {now_ms - sent_ms} ms old, its client waited for {header.poll_time_ms} ms",
            )
        self._admission.check_count(header.max_msg_nums)
        self._admission.check_invisible_time(header.invisible_time_ms, 1)
        self._admission.check_attempt(header.attempt_id)
        ends_at_ms = sent_ms + header.poll_time_ms
        key = QueueKey(header.topic, header.consumer_group, max(header.queue_id, ANY_QUEUE))
        request = _PopRequest(connection, command, header, key, ends_at_ms)

        entries_end = self._store.entries_end

        def conclude(pop: Pop) -> Eventual:
            if pop.count or header.poll_time_ms <= 0:
                return self._respond(command, pop)
            return self._hold(request, pop, is_outdated=self._store.entries_end != entries_end)

        return self._walk(request, conclude)

    def _walk(
        self, request: _PopRequest, conclude: Callable[[Pop], _R | asyncio.Future[_R]]
    ) -> _R | asyncio.Future[_R]:
        """Pop from the queues, and return what `conclude` makes of it. Raises CommandError."""
        header, queue_id = request.header, request.key.queue_id

        def check() -> None:
            self._admission.check(header.consumer_group, header.topic, queue_id, request.connection.peer)

        check()
        pop = Pop(
            header.topic,
            header.consumer_group,
            queue_id,
            header.max_msg_nums,
            header.invisible_time_ms,
            header.init_mode,
            header.order,
            header.attempt_id,
            self._reader(header),
        )
        walk = self._pops.popping.walk(pop)
        return self._walks.finish(request.connection, walk, check, lambda: conclude(pop))

    def _reader(self, header: PopMessageRequestHeader) -> Read:
        """Return a function that reads the messages that pass the request's filter. Raises CommandError."""
        subscription = self._parsed.of(header.topic, header.expression, header.expression_type)
        wanted = self._filters.of_pop(header.consumer_group, subscription)

        def read(topic: str, queue_id: int, offset: int, most: int) -> GetResult | ColdRead:
            return self._store.get_now(topic, queue_id, offset, most, wanted.tags_codes, 0, wanted.properties)

        return read

    # --- waiting ---

    def _hold(self, request: _PopRequest, pop: Pop, *, is_outdated: bool) -> Eventual:
        """Hold a pop that found nothing, if there is time and room for it.

        `is_outdated`: messages were stored during its walk, maybe behind it.
        """
        command, key = request.command, request.key
        # The clock may have been set back since the pop arrived.
        wait_ms = min(request.ends_at_ms - self._now_ms(), request.header.poll_time_ms) - AHEAD_MS
        if wait_ms <= 0:
            return self._respond(command, pop, ResponseCode.POLLING_TIMEOUT)
        held_pops = self._pops.held_pops
        if not held_pops.has_room(request.connection, command, key):
            return self._respond(command, pop, ResponseCode.POLLING_FULL)

        def look_again(time_is_up: bool) -> Look:
            def conclude(again: Pop) -> LookResult:
                if again.count or time_is_up:
                    return self._respond(command, again, ResponseCode.POLLING_TIMEOUT)
                self._wake_again(key, again)
                return STILL_WAITING

            return self._walk(request, conclude)

        future = held_pops.hold(request.connection, key, wait_ms / 1000, look_again, held_bytes(command))
        if is_outdated:
            held_pops.wake(key)
        self._wake_again(key, pop)
        return future

    def _wake_again(self, key: QueueKey, pop: Pop) -> None:
        """Have a pop look again that found nothing although the queues hold messages."""
        if pop.has_skipped:
            self._pops.held_pops.wake(key)
        elif pop.is_blocked:
            self._pops.held_pops.retry_next_tick(key)

    # --- answering ---

    def _respond(
        self, command: RemotingCommand, pop: Pop, code_without: int = ResponseCode.POLLING_TIMEOUT
    ) -> RemotingCommand:
        """Return the response; `code_without` is the code of one without messages."""
        if pop.count and pop.rest:
            # Another pop that waits for the same key may get the rest.
            self._pops.held_pops.wake(QueueKey(pop.topic, pop.group, pop.queue_id))
        infos = pop.infos
        header = PopMessageResponseHeader(
            invisible_time_ms=pop.invisible_time_ms,
            pop_time=pop.pop_time,
            revive_queue_id=pop.revive_queue_id,
            rest_num=pop.rest,
            start_offset_info=infos.start_offset_info,
            msg_offset_info=infos.msg_offset_info,
            order_count_info=infos.order_count_info if pop.in_order else None,
        )
        if not pop.count:
            remark = GetStatus.NO_MESSAGE_IN_QUEUE.value
            return command.response(code_without, remark, header.encode())
        body = b"".join(pop.bodies)
        return command.response(ResponseCode.SUCCESS, GetStatus.FOUND.value, header.encode(), body)

    def polling_info(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Answer 200055: how many pops wait for a queue. Raises CommandError."""
        header = PollingInfoRequestHeader.decode(command.ext_fields)
        self._admission.check(header.consumer_group, header.topic, header.queue_id, connection.peer)
        key = QueueKey(header.topic, header.consumer_group, header.queue_id)
        fields = PollingInfoResponseHeader(polling_num=self._pops.held_pops.count_of(key)).encode()
        return command.response(ResponseCode.SUCCESS, ext_fields=fields)
