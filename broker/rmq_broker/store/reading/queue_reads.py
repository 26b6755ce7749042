"""Reads of queues by topic and queue id: messages, offsets and times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..log.commit_log import CommitLog
from ..queues.consume_queue import ConsumeQueue
from ..queues.consume_queues import ConsumeQueues
from ..queues.extension import ExtUnit
from .cold_read import ColdRead
from .property_filter import PropertyFilter
from .reader import Reader
from .results import GetResult, ReadStatistics


class QueueReads:
    """The part of the message store that reads queues."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        reader: Reader,
        is_batch: Callable[[str], bool],
    ) -> None:
        """`is_batch` tells which topics store batches as wholes."""
        self.commit_log = commit_log
        self.queues = queues
        self.reader = reader
        # Bound here, which saves a call on the path of each pull.
        self.read_now = reader.get_now
        self.finish = reader.finish
        self._is_batch = is_batch

    # --- messages ---

    def get(
        self, topic: str, queue_id: int, offset: int, max_count: int, tags_codes: frozenset[int] | None
    ) -> GetResult:
        """Return messages of a queue from `offset` on; blocks if they have to be read from disk."""
        return self.reader.get(self.queues.get(topic, queue_id), offset, max_count, tags_codes)

    def get_now(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        tags_codes: frozenset[int] | None,
        max_bytes: int = 0,
        properties: PropertyFilter | None = None,
    ) -> GetResult | ColdRead:
        """Return messages of a queue from `offset` on, without blocking; see Reader.get_now.

        If the disk is needed, the result is a `ColdRead`, to be run in a thread.
        """
        queue = self.queues.get(topic, queue_id)
        return self.reader.get_now(queue, offset, max_count, tags_codes, max_bytes, properties)

    async def get_async(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        tags_codes: frozenset[int] | None,
        max_bytes: int = 0,
    ) -> GetResult:
        """Return messages of a queue as `get_now`; a thread reads those that are not in memory.

        Raises OSError.
        """
        result = self.get_now(topic, queue_id, offset, max_count, tags_codes, max_bytes)
        if not isinstance(result, ColdRead):
            return result
        await asyncio.get_running_loop().run_in_executor(None, result.run)
        return self.finish(result)

    def is_cold_from(self, queue: ConsumeQueue, offset: int) -> bool:
        """Estimate whether the message at a queue offset is cold; see Reader.is_cold_from."""
        return self.reader.is_cold_from(queue, offset)

    @property
    def read_statistics(self) -> ReadStatistics:
        """Counters of reads."""
        return self.reader.statistics

    # --- offsets and times ---

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue; 0 before its first message."""
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def reported_min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset as clients are told: -1 for a topic of batches before its first message."""
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return -1 if self._is_batch(topic) else 0
        return queue.reported_min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next message of a queue gets."""
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def assigned_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind all stored messages, also those that are still flushed or replicated."""
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else queue.next_offset

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        """Return the offset of the first message stored at or after a time, else the end of the queue.

        `upper`: of the last message stored at or before it, else the beginning. Raises OSError; blocks.
        """
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return 0
        return queue.offset_by_time(timestamp_ms, self.commit_log.store_timestamp, upper=upper)

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return when a message was stored, in ms; -1 if it is not there. Raises OSError; blocks."""
        queue = self.queues.get(topic, queue_id)
        return -1 if queue is None else self._store_time(queue, queue_offset)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Return when the first message of a queue was stored, in ms; -1 if it is empty."""
        queue = self.queues.get(topic, queue_id)
        return -1 if queue is None else self._store_time(queue, queue.min_offset)

    def _store_time(self, queue: ConsumeQueue, offset: int) -> int:
        entry = queue.entry(offset)
        return -1 if entry is None else self.commit_log.store_timestamp(entry[0])

    def store_timestamp(self, physical_offset: int) -> int:
        """Return when the record at a log offset was stored, in ms; -1 if none begins there.

        Raises OSError; blocks.
        """
        return self.commit_log.store_timestamp(physical_offset)

    def store_timestamp_now(self, physical_offset: int) -> int:
        """Return what `store_timestamp` does, without blocking. Raises ColdData, OSError."""
        return self.reader.store_timestamp_now(physical_offset)

    def first_physical_offset(self, topic: str, queue_id: int) -> int | None:
        """Return where message 0 of a queue is in the log; None if it is not there (any more)."""
        queue = self.queues.get(topic, queue_id)
        return None if queue is None else queue.first_physical_offset()

    def is_first_in_memory(self, topic: str, queue_id: int) -> bool:
        """Estimate whether message 0 is still in memory, by its distance from the log's end."""
        physical_offset = self.first_physical_offset(topic, queue_id)
        return physical_offset is not None and self.reader.is_recent(physical_offset)

    def queue_entries(
        self, topic: str, queue_id: int, offset: int, max_count: int
    ) -> list[tuple[int, int, int]] | None:
        """Return physical offset, size and tags code of messages from `offset` on; None: no such queue.

        Raises OSError; blocks.
        """
        queue = self.queues.get(topic, queue_id)
        return None if queue is None else queue.entries(offset, max_count)

    def ext_unit(self, topic: str, queue_id: int, address: int) -> ExtUnit | None:
        """Return the unit at an address of a queue's extension files. Raises OSError; blocks."""
        queue = self.queues.get(topic, queue_id)
        return None if queue is None or queue.ext is None else queue.ext.unit(address)
