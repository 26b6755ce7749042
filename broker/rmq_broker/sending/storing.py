"""Store the messages of a planned send, and count them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ..delivery.inner_message import InnerMessage
from ..delivery.message_writer import Written
from ..store.api import BatchConsumeQueue, Placed, PlacedBatch
from .kinds import SendKind

if TYPE_CHECKING:
    from rmq_remoting.headers.send import SendMessageRequestHeader

    from ..statistics.broker_statistics import BrokerStatistics
    from ..store.api import MessageStore, RecordTemplate
    from .plan import SendPlan
    from .redirection import Redirection
    from .routes import Route

_PLAIN: Final = SendKind.PLAIN
_BATCH: Final = SendKind.BATCH
_UNIT: Final = SendKind.UNIT
_IPV4_HOST_BYTES: Final = 8
_MILLISECOND: Final = 0.001


Stored = Placed | PlacedBatch | Written
"""Where a send's messages were stored: one record, those of a batch, or a message that was redirected."""


class SendStorage:
    """Stores planned sends; belongs to the loop's thread."""

    def __init__(
        self,
        store: MessageStore,
        statistics: BrokerStatistics,
        redirection: Redirection,
        store_host: bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`store_host`: this broker's address, packed as in records. `clock` counts seconds."""
        self._store = store
        self._redirection = redirection
        self._store_host = store_host
        self._put_times = statistics.put_times
        self._clock = clock

    def store(
        self,
        plan: SendPlan,
        header: SendMessageRequestHeader,
        route: Route,
        body: bytes,
        born_host: bytes,
    ) -> Stored:
        """Store the messages of a send; `born_host` is the producer's address, packed as in records.

        Raises CommandError, StoreUnavailable, MessageRejected; nothing is stored then.
        """
        kind, statistics = plan.kind, route.statistics
        template = route.template if len(born_host) == _IPV4_HOST_BYTES else route.template_v6
        began = self._clock()
        if kind is _PLAIN:
            stored: Stored = self._store.put(
                route.queue,
                template,
                body,
                plan.properties,
                tags_code=plan.tags_code,
                born_timestamp_ms=header.born_timestamp_ms,
                born_host=born_host,
                unique_key=plan.unique_key,
            )
            size_bytes = stored[2]
            statistics.put_messages += 1
            statistics.put_bytes += size_bytes
            statistics.put_sizes.observe(size_bytes)
        elif kind is _BATCH:
            stored = self._store_batch(plan, header, route, template, born_host)
        elif kind is _UNIT:
            stored = self._store_unit(plan, header, route, template, body, born_host)
        else:
            stored = self._store_redirected(plan, header, route, body, born_host)
        elapsed_seconds = self._clock() - began
        if elapsed_seconds < _MILLISECOND:
            self._put_times.under_a_millisecond += 1
        else:
            self._put_times.add(int(elapsed_seconds * 1000))
        return stored

    def _store_batch(
        self,
        plan: SendPlan,
        header: SendMessageRequestHeader,
        route: Route,
        template: RecordTemplate,
        born_host: bytes,
    ) -> PlacedBatch:
        placed = self._store.put_batch(
            route.queue,
            template,
            plan.messages,
            born_timestamp_ms=header.born_timestamp_ms,
            born_host=born_host,
            unique_key=plan.unique_key,
            has_keys=plan.has_keys,
        )
        statistics = route.statistics
        statistics.put_messages += len(placed.sizes_bytes)
        statistics.put_bytes += placed.total_bytes
        statistics.put_sizes.observe_all(placed.sizes_bytes)
        return placed

    def _store_unit(
        self,
        plan: SendPlan,
        header: SendMessageRequestHeader,
        route: Route,
        template: RecordTemplate,
        body: bytes,
        born_host: bytes,
    ) -> Placed:
        count = len(plan.messages.bodies)
        assert isinstance(route.queue, BatchConsumeQueue)
        placed = self._store.put_unit(
            route.queue,
            template,
            body,
            plan.properties,
            count,
            tags_code=plan.tags_code,
            born_timestamp_ms=header.born_timestamp_ms,
            born_host=born_host,
            unique_key=plan.unique_key,
        )
        statistics = route.statistics
        statistics.put_messages += count
        statistics.put_bytes += placed.size_bytes
        statistics.put_sizes.observe(placed.size_bytes)
        return placed

    def _store_redirected(
        self,
        plan: SendPlan,
        header: SendMessageRequestHeader,
        route: Route,
        body: bytes,
        born_host: bytes,
    ) -> Written:
        """The message writer counts the message, for the topic that it is stored in."""
        target, queue = header.target, route.queue
        message = InnerMessage(
            queue.topic,
            queue.queue_id,
            body,
            plan.properties,
            target.flag,
            route.sys_flag,
            target.reconsume_times,
            header.born_timestamp_ms,
            born_host,
            self._store_host,
        )
        return self._redirection.put(plan, target, message)
