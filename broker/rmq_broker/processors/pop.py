"""Popping: codes 200050 and 200055 (Apache RocketMQ 5.3.3, PopMessageProcessor, PollingInfoProcessor)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.dispatch import Result
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.pop import (
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)

from ..clients.parsed_subscriptions import ParsedSubscriptions
from ..pop.check_point import QueueKey
from ..pop.polls import AHEAD_MS, ANY_QUEUE
from ..pop.popping import Pop, Read
from ..store.api import ColdRead, GetResult, GetStatus
from .pop_admission import PopAdmission
from .pop_walks import Walks

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ..clock import ClockMs
    from ..filtering.message_filters import MessageFilters
    from ..pop.service import PopService
    from ..store.api import MessageStore

# A pop that comes so much later than its client waits for it would find nobody.
_TOO_LATE_MS: Final = 500


class PopProcessor:
    """Answers pops with messages, or holds them until there are some."""

    def __init__(
        self,
        admission: PopAdmission,
        pops: PopService,
        store: MessageStore,
        walks: Walks,
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

    # --- popping ---

    def pop(self, connection: Connection, request: RemotingCommand) -> Result:
        """200050: messages now, or a promise of them."""
        if connection.is_closed:
            return None  # they would be invisible for nobody
        header = PopMessageRequestHeader.decode(request.ext_fields)
        now_ms = self._now_ms()
        born_ms = header.born_time or now_ms
        if now_ms - born_ms - header.poll_time_ms > _TOO_LATE_MS:
            raise CommandError(
                ResponseCode.POLLING_TIMEOUT,
                f"the pop is {now_ms - born_ms} ms old, its client waited for {header.poll_time_ms} ms",
            )
        self._admission.check_count(header.max_msg_nums)
        self._admission.check_invisible_time(header.invisible_time_ms, 1)
        # A client's clock may be ahead: it waits no longer for that.
        ends_at_ms = min(born_ms, now_ms) + header.poll_time_ms

        def finish(pop: Pop) -> Result:
            if pop.count or header.poll_time_ms <= 0:
                return self._respond(request, pop)
            return self._hold(connection, request, header, pop, ends_at_ms)

        return self._try(connection, header, finish)

    def _try(
        self,
        connection: Connection,
        header: PopMessageRequestHeader,
        finish: Callable[[Pop], Result],
    ) -> Result:
        """Pop what is there, and go on with it. Raises CommandError."""
        queue_id = max(header.queue_id, ANY_QUEUE)
        self._admission.check(header.consumer_group, header.topic, queue_id, connection.peer)
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
        return self._walks.finish(connection, self._pops.popping.walk(pop), lambda: finish(pop))

    def _reader(self, header: PopMessageRequestHeader) -> Read:
        """How messages are read that the group wants. Raises CommandError."""
        subscription = self._parsed.of(header.topic, header.expression, header.expression_type)
        wanted = self._filters.of_pop(header.consumer_group, subscription)

        def read(topic: str, queue_id: int, offset: int, most: int) -> GetResult | ColdRead:
            return self._store.get_now(topic, queue_id, offset, most, wanted.tags_codes, 0, wanted.properties)

        return read

    # --- waiting ---

    def _hold(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PopMessageRequestHeader,
        pop: Pop,
        ends_at_ms: int,
    ) -> Result:
        wait_ms = ends_at_ms - AHEAD_MS - self._now_ms()
        key = QueueKey(pop.topic, pop.group, pop.queue_id)
        if wait_ms <= 0:
            return self._respond(request, pop, ResponseCode.POLLING_TIMEOUT)
        polls = self._pops.polls
        if not polls.has_room(key):
            return self._respond(request, pop, ResponseCode.POLLING_FULL)

        def look_again(time_is_up: bool) -> Result:
            def finish(again: Pop) -> Result:
                if again.count or time_is_up:
                    return self._respond(request, again, ResponseCode.POLLING_TIMEOUT)
                self._stay_awake(key, again)
                return None

            return self._try(connection, header, finish)

        promise = polls.hold(connection, key, wait_ms / 1000, look_again)
        self._stay_awake(key, pop)
        return promise

    def _stay_awake(self, key: QueueKey, pop: Pop) -> None:
        """Have a waiting pop looked at again that has not been given what is there."""
        if pop.passed_over:
            self._pops.polls.wake(key)
        elif pop.is_held_up:
            self._pops.polls.look_later(key)

    # --- answering ---

    def _respond(
        self, request: RemotingCommand, pop: Pop, code_without: int = ResponseCode.POLLING_TIMEOUT
    ) -> RemotingCommand:
        """The answer; `code_without` is its code where nothing was found."""
        if pop.count and pop.rest:
            # Whoever waits for the same may have the rest.
            self._pops.polls.wake(QueueKey(pop.topic, pop.group, pop.queue_id))
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
            return request.response(code_without, remark, header.encode())
        body = b"".join(pop.bodies)
        return request.response(ResponseCode.SUCCESS, GetStatus.FOUND.value, header.encode(), body)

    def polling_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """200055: how many pops wait for a queue."""
        header = PollingInfoRequestHeader.decode(request.ext_fields)
        self._admission.check(header.consumer_group, header.topic, header.queue_id, connection.peer)
        key = QueueKey(header.topic, header.consumer_group, header.queue_id)
        fields = PollingInfoResponseHeader(polling_num=self._pops.polls.count_of(key)).encode()
        return request.response(ResponseCode.SUCCESS, ext_fields=fields)
