"""Offsets of logical queues: codes 14, 15 and 29 to 32 for static topics.

Requests about all other topics, and those that another broker forwarded, go to the processors of physical
queues. Source: Apache RocketMQ 5.3.3, AdminBrokerProcessor, ConsumerManageProcessor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmq_remoting.answers import Answer, Result
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.deferred_answers import deferred_answer
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.offsets import (
    BoundaryType,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

from ..offsets.table import NO_OFFSET
from ..static_topics.other_brokers import refused, succeeded
from ..static_topics.requests import is_physical, physical_fields, rewritten
from ..topics.queue_mapping import (
    Items,
    bounded_logical_offset,
    is_located,
    located_item,
    logical_offset,
    newest_item,
    physical_offset,
)

if TYPE_CHECKING:
    from rmq_remoting.bodies.static_topic import LogicQueueMappingItem
    from rmq_remoting.connection import Connection

    from ..offsets.table import ConsumerOffsetTable
    from ..static_topics.other_brokers import OtherBrokers
    from ..topics.queue_mapping import QueueMapping
    from ..topics.table import TopicTable
    from .consumer import ConsumerOffsetProcessor
    from .offsets import QueueOffsetProcessor
    from .store_view import StoreView

_NAME: Final = "ask another broker of a static topic"


class _Found(NamedTuple):
    """The result of a search by time in one item; `offset` is physical."""

    item: LogicQueueMappingItem
    offset: int
    is_inside: bool  # the item has a message before the time that was searched


class LogicalQueueProcessor:
    """Translates requests between logical and physical queues; asks other brokers for their parts.

    `loop` is the running one, for the methods that run in a pool.
    """

    def __init__(
        self,
        queues: QueueOffsetProcessor,
        consumers: ConsumerOffsetProcessor,
        topics: TopicTable,
        offsets: ConsumerOffsetTable,
        store: StoreView,
        brokers: OtherBrokers,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._queues = queues
        self._consumers = consumers
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._brokers = brokers
        self._loop = loop

    # --- ends of queues ---

    def max_offset(self, connection: Connection, request: RemotingCommand) -> Result:
        """30: the offset of the next message. Raises CommandError if another broker leads the queue."""
        mapping = self._mapping_of(request)
        if mapping is None:
            return self._queues.max_offset(connection, request)
        queue_id = GetMaxOffsetRequestHeader.decode(request.ext_fields).queue_id
        item = newest_item(mapping.topic, queue_id, mapping.led_items(queue_id))
        if mapping.is_here(item):
            end = self._store.max_offset(mapping.topic, item.queue_id)
            return _offset(request, logical_offset(item, end))
        return deferred_answer(self._max_offset_there(mapping, item, request), _NAME)

    async def _max_offset_there(
        self, mapping: QueueMapping, item: LogicQueueMappingItem, request: RemotingCommand
    ) -> Answer:
        end = await self._offset_there(mapping, item, request)
        return _offset(request, logical_offset(item, end))

    def min_offset(self, connection: Connection, request: RemotingCommand) -> Result:
        """31: the offset of the first message. Raises CommandError if another broker leads the queue."""
        mapping = self._mapping_of(request)
        if mapping is None:
            return self._queues.min_offset(connection, request)
        item = _first_item(mapping, GetMinOffsetRequestHeader.decode(request.ext_fields).queue_id)
        if mapping.is_here(item):
            begin = self._store.reported_min_offset(mapping.topic, item.queue_id)
            return _offset(request, bounded_logical_offset(item, begin))
        return deferred_answer(self._min_offset_there(mapping, item, request), _NAME)

    async def _min_offset_there(
        self, mapping: QueueMapping, item: LogicQueueMappingItem, request: RemotingCommand
    ) -> Answer:
        begin = await self._offset_there(mapping, item, request)
        return _offset(request, bounded_logical_offset(item, begin))

    def earliest_time(self, connection: Connection, request: RemotingCommand) -> Result:
        """32, in a pool: the store time of the first message."""
        mapping = self._mapping_of(request)
        if mapping is None:
            return self._queues.earliest_time(connection, request)
        item = _first_item(mapping, GetEarliestMsgStoretimeRequestHeader.decode(request.ext_fields).queue_id)
        if mapping.is_here(item):
            fields = physical_fields(request.ext_fields, item.queue_id)
            return self._queues.earliest_time(connection, rewritten(request, fields))
        return self._on_loop(self._earliest_time_there(mapping, item, request))

    async def _earliest_time_there(
        self, mapping: QueueMapping, item: LogicQueueMappingItem, request: RemotingCommand
    ) -> Answer:
        response = await self._ask(mapping, item, request)
        timestamp = GetEarliestMsgStoretimeResponseHeader.decode(response.ext_fields).timestamp
        return request.response(ResponseCode.SUCCESS, ext_fields={"timestamp": str(timestamp)})

    # --- search by time ---

    def by_time(self, connection: Connection, request: RemotingCommand) -> Result:
        """29, in a pool: the offset of the first message at or after a time, or of the last one before it.

        The newest item with an earlier message has the answer, or else the oldest item. Apache's broker takes
        the newest item that answers at all, and thereby skips messages of older items.
        """
        mapping = self._mapping_of(request)
        if mapping is None:
            return self._queues.by_time(connection, request)
        header = SearchOffsetRequestHeader.decode(request.ext_fields)
        items = [item for item in mapping.led_items(header.queue_id) if is_located(item)]
        newest_item(mapping.topic, header.queue_id, items)
        here: list[_Found | LogicQueueMappingItem] = []
        for item in reversed(items):
            if not mapping.is_here(item):
                here.append(item)
                continue
            found = self._search_here(item, header)
            here.append(found)
            if found.is_inside:
                break
        if all(isinstance(found, _Found) for found in here):
            return _found(request, [found for found in here if isinstance(found, _Found)])
        return self._on_loop(self._search_there(mapping, request, here))

    def _search_here(self, item: LogicQueueMappingItem, header: SearchOffsetRequestHeader) -> _Found:
        topic, queue_id, time_ms = header.topic, item.queue_id, header.timestamp
        upper = header.boundary_type is BoundaryType.UPPER
        offset = self._store.offset_by_time(topic, queue_id, time_ms, upper)
        is_inside = offset > self._store.min_offset(topic, queue_id)
        if upper and not is_inside:
            is_inside = 0 <= self._store.earliest_store_time(topic, queue_id) <= time_ms
        return _Found(item, offset, is_inside)

    async def _search_there(
        self,
        mapping: QueueMapping,
        request: RemotingCommand,
        items: Sequence[_Found | LogicQueueMappingItem],
    ) -> Answer:
        """Ask the other brokers, newest item first, as far as their items matter."""
        results: list[_Found] = []
        for item in items:
            if isinstance(item, _Found):
                results.append(item)
            else:
                response = await self._ask(mapping, item, request)
                offset = SearchOffsetResponseHeader.decode(response.ext_fields).offset
                results.append(_Found(item, offset, offset > item.start_offset))
            if results[-1].is_inside:
                break
        return _found(request, results)

    # --- offsets of groups ---

    def query(self, connection: Connection, request: RemotingCommand) -> Result:
        """14: the offset that a group consumes next: that of the newest item for which it has one.

        A group without an offset begins where it begins in the queue of the oldest item. Apache's broker lets
        the client decide if there are several items.
        """
        mapping = self._mapping_of(request)
        if mapping is None:
            return self._consumers.query(connection, request)
        header = QueryConsumerOffsetRequestHeader.decode(request.ext_fields)
        items = [item for item in mapping.led_items(header.queue_id) if is_located(item)]
        oldest = located_item(header.topic, header.queue_id, items, 0)
        if len(items) == 1 and mapping.is_here(oldest):
            return self._query_oldest(connection, request, oldest)
        return deferred_answer(self._query_items(connection, mapping, request, header, items), _NAME)

    def _query_oldest(
        self, connection: Connection, request: RemotingCommand, item: LogicQueueMappingItem
    ) -> RemotingCommand:
        """Answer with the offset in an item of this broker. Raises CommandError if there is none."""
        fields = physical_fields(request.ext_fields, item.queue_id)
        answer = self._consumers.query(connection, rewritten(request, fields))
        offset = QueryConsumerOffsetResponseHeader.decode(answer.ext_fields).offset
        return _offset(request, logical_offset(item, offset))

    async def _query_items(
        self,
        connection: Connection,
        mapping: QueueMapping,
        request: RemotingCommand,
        header: QueryConsumerOffsetRequestHeader,
        items: Items,
    ) -> Answer:
        for item in reversed(items):
            is_oldest = item is items[0]
            if not mapping.is_here(item):
                offset = await self._committed_there(mapping, item, request, is_oldest=is_oldest)
            elif is_oldest:
                return self._query_oldest(connection, request, item)
            else:
                offset = self._offsets.query(header.consumer_group, header.topic, item.queue_id)
            if offset >= 0:
                return _offset(request, logical_offset(item, offset))
        raise CommandError(
            ResponseCode.QUERY_NOT_FOUND,
            f"group {header.consumer_group} has no offset for logical queue {header.queue_id} of "
            f"{header.topic}: it has not consumed from the queue yet",
        )

    async def _committed_there(
        self,
        mapping: QueueMapping,
        item: LogicQueueMappingItem,
        request: RemotingCommand,
        *,
        is_oldest: bool,
    ) -> int:
        name = item.broker_name or ""
        fields = physical_fields(request.ext_fields, item.queue_id)
        if not is_oldest:
            fields["setZeroIfNotFound"] = "false"
        response = await self._brokers.ask(mapping.topic, name, RequestCode.QUERY_CONSUMER_OFFSET, fields)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return NO_OFFSET
        return QueryConsumerOffsetResponseHeader.decode(succeeded(response, name).ext_fields).offset

    def update(self, connection: Connection, request: RemotingCommand) -> Result:
        """15: commit the offset that a group consumes next, where the messages at this offset are."""
        mapping = self._mapping_of(request)
        if mapping is None:
            return self._consumers.update(connection, request)
        header = UpdateConsumerOffsetRequestHeader.decode(request.ext_fields)
        items = mapping.led_items(header.queue_id)
        item = located_item(header.topic, header.queue_id, items, header.commit_offset)
        offset = max(NO_OFFSET, physical_offset(item, header.commit_offset))
        fields = physical_fields(request.ext_fields, item.queue_id, commitOffset=offset)
        if mapping.is_here(item):
            return self._consumers.update(connection, rewritten(request, fields))
        return deferred_answer(self._update_there(mapping, item, request, fields), _NAME)

    async def _update_there(
        self,
        mapping: QueueMapping,
        item: LogicQueueMappingItem,
        request: RemotingCommand,
        fields: dict[str, str],
    ) -> Answer:
        name = item.broker_name or ""
        response = await self._brokers.ask(mapping.topic, name, RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        if response.code != ResponseCode.SUCCESS:
            raise refused(response, name)
        return request.response(ResponseCode.SUCCESS, response.remark)

    # --- inside ---

    def _mapping_of(self, request: RemotingCommand) -> QueueMapping | None:
        """Return the mapping of the request's topic; None if the request is about a physical queue."""
        mappings = self._topics.mappings
        if not mappings:
            return None
        fields = request.ext_fields
        mapping = mappings.get(fields.get("topic", ""))
        return None if mapping is None or is_physical(fields) else mapping

    async def _ask(
        self, mapping: QueueMapping, item: LogicQueueMappingItem, request: RemotingCommand
    ) -> RemotingCommand:
        """Ask the broker of an item the same about its queue. Raises CommandError."""
        name = item.broker_name or ""
        fields = physical_fields(request.ext_fields, item.queue_id)
        response = await self._brokers.ask(mapping.topic, name, RequestCode(request.code), fields)
        return succeeded(response, name)

    async def _offset_there(
        self, mapping: QueueMapping, item: LogicQueueMappingItem, request: RemotingCommand
    ) -> int:
        response = await self._ask(mapping, item, request)
        return SearchOffsetResponseHeader.decode(response.ext_fields).offset

    def _on_loop(self, work: Coroutine[Any, Any, Answer]) -> asyncio.Future[Answer]:
        """Return the future answer of a coroutine that runs on the loop; for the threads of a pool."""
        started = asyncio.run_coroutine_threadsafe(work, self._loop)
        return asyncio.wrap_future(started, loop=self._loop)


def _first_item(mapping: QueueMapping, queue_id: int) -> LogicQueueMappingItem:
    return located_item(mapping.topic, queue_id, mapping.led_items(queue_id), 0)


def _found(request: RemotingCommand, results: Sequence[_Found]) -> RemotingCommand:
    """Return the answer to a search by time; `results` are those of items, newest first."""
    inside = next((result for result in results if result.is_inside), results[-1])
    return _offset(request, logical_offset(inside.item, inside.offset))


def _offset(request: RemotingCommand, offset: int) -> RemotingCommand:
    return request.response(ResponseCode.SUCCESS, ext_fields={"offset": str(offset)})
