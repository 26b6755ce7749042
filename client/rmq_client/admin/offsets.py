"""Offsets of queues and of groups, read and committed queue by queue."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rmq_remoting.codes import RequestCode
from rmq_remoting.message_queue import MessageQueue

from ..checks import check_time_ms
from .arguments import checked
from .base import AdminBase
from .results import time_of

if TYPE_CHECKING:
    from .broker_results import QueueEntries


class OffsetAdmin(AdminBase):
    """Offsets of single queues."""

    @checked
    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of the queue will get. Raises ClientError."""
        queue = self._namespace.wrap_queue(queue)
        return await self._at_broker(queue, self._api.max_offset)

    @checked
    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message in the queue. Raises ClientError."""
        queue = self._namespace.wrap_queue(queue)
        return await self._at_broker(queue, self._api.min_offset)

    @checked
    async def search_offset(self, queue: MessageQueue, time: datetime) -> int:
        """Return the offset of the first message stored at `time`, which has a time zone, or later.

        Without such a message it is the offset that the next message will get. Raises ClientError.
        """
        queue, timestamp_ms = self._namespace.wrap_queue(queue), check_time_ms("time", time)
        return await self._at_broker(
            queue, lambda address, asked: self._api.search_offset(address, asked, timestamp_ms)
        )

    @checked
    async def earliest_time(self, queue: MessageQueue) -> datetime | None:
        """Return the store time of the oldest message of a queue, None if it has none. Raises ClientError."""
        from rmq_remoting.headers.offsets import (  # noqa: PLC0415
            GetEarliestMsgStoretimeRequestHeader,
            GetEarliestMsgStoretimeResponseHeader,
        )

        queue = self._namespace.wrap_queue(queue)
        header = GetEarliestMsgStoretimeRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        timestamp_ms = await self._api.ask(
            await self._address_of(queue),
            RequestCode.GET_EARLIEST_MSG_STORETIME,
            header,
            f"time of the oldest message of {queue}",
            lambda answer: GetEarliestMsgStoretimeResponseHeader.decode(answer.ext_fields).timestamp,
        )
        return time_of(timestamp_ms)

    @checked
    async def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return the committed offset of a group in a queue, None if it has committed none.

        Raises ClientError.
        """
        group, queue = self._namespace.wrap(group), self._namespace.wrap_queue(queue)
        return await self._at_broker(
            queue, lambda address, asked: self._api.committed_offset(address, group, asked)
        )

    @checked
    async def queue_entries(
        self, queue: MessageQueue, offset: int, *, max_entries: int = 10, group: str | None = None
    ) -> QueueEntries:
        """Return the entries of a queue from `offset` on, which say where its messages are in the log.

        With `group`, the filter that the group's connected consumers have is applied. The offset may be
        outside of the queue: there are no entries then. Raises ClientError.
        """
        from rmq_remoting.bodies.checks import QueryConsumeQueueResponseBody  # noqa: PLC0415
        from rmq_remoting.headers.query import QueryConsumeQueueRequestHeader  # noqa: PLC0415

        from .broker_results import QueueEntries, QueueEntry  # noqa: PLC0415

        full = self._namespace.wrap_queue(queue)
        header = QueryConsumeQueueRequestHeader(
            topic=full.topic,
            queue_id=full.queue_id,
            index=offset,
            count=max_entries,
            consumer_group=None if group is None else self._namespace.checked_group(group),
        )
        found = await self._body(
            await self._address_of(full),
            RequestCode.QUERY_CONSUME_QUEUE,
            header,
            f"entries of {queue} from {offset} on",
            QueryConsumeQueueResponseBody.decode,
        )
        return QueueEntries(
            entries=tuple(
                QueueEntry(
                    offset=offset + number,
                    physical_offset=each.physical_offset,
                    size_bytes=each.physical_size,
                    tags_code=each.tags_code,
                    matches=None if group is None else each.eval,
                    details=each.extend_data_json or each.msg or "",
                )
                for number, each in enumerate((found.queue_data or [])[:max_entries])
            ),
            min_offset=found.min_queue_index,
            max_offset=found.max_queue_index,
            expression=None if found.subscription_data is None else found.subscription_data.sub_string,
            filter_text=found.filter_data,
        )

    @checked
    async def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the committed offset of a group in a queue.

        Its consumers must not be running. Raises ClientError.
        """
        group, queue = self._namespace.wrap(group), self._namespace.wrap_queue(queue)
        await self._at_broker(
            queue, lambda address, asked: self._api.commit_offset(address, group, asked, offset)
        )
