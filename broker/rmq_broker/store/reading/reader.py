"""Reading a queue: which messages a pull gets (Apache RocketMQ 5.3.3, DefaultMessageStore.getMessage).

The event loop does not wait for a disk: a read that needs it is returned as a `ColdRead`, to be run in a
thread.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import monotonic
from typing import Final

from ..log.commit_log import CommitLog
from ..log.mapped_file import Preadv
from ..log.record import MIN_RECORD_BYTES, parse_record, store_timestamp_at
from ..queues.batch_consume_queue import BatchEntry, batch_entries
from ..queues.consume_queue import QUEUE_ENTRY, ConsumeQueue, Entry
from ..queues.entry_file import PLACEHOLDER_SIZE
from ..settings import PullSettings
from .cold_read import ColdRead, fetch
from .log_ranges import ColdData, ColdLog, SequentialReads, WarmLog
from .property_filter import PropertyFilter
from .results import GetResult, GetStatus, ReadStatistics
from .selection import EntrySelector, ReadRequest, Selection, TransferLimits

_iter_entries = QUEUE_ENTRY.iter_unpack
# Messages that a consumer at the tail of a queue gets directly, at most; mostly it finds one.
_FEW: Final = 4


class Reader:
    """Reads messages for consumers, on the event loop's thread."""

    def __init__(self, commit_log: CommitLog, settings: PullSettings, preadv: Preadv = os.preadv) -> None:
        self.statistics = ReadStatistics()
        # Memory of the machine: the newest bytes of the log, up to a share of it, are probably in memory.
        self.memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.warm = WarmLog(commit_log, preadv)
        self._log = commit_log
        self._settings = settings
        self._selector = EntrySelector(settings)
        self._sequential_reads = SequentialReads()
        self.caches = (self._sequential_reads.ends,)

    def is_recent(self, physical_offset: int) -> bool:
        """Estimate whether a message is still in memory, by its distance from the log's end."""
        return physical_offset >= self._recent_from()

    def is_cold_from(self, queue: ConsumeQueue, offset: int) -> bool:
        """Estimate whether the message at a queue offset is cold, by its distance from the log's end.

        False where no message is there. Does not block: if the queue's entry is not in memory, the message
        counts as cold.
        """
        if not queue.min_offset <= offset < queue.max_offset:
            return False
        raw = queue.read_now(offset, 1)
        if raw is None:
            return True
        if not raw:
            return False
        at = batch_entries(raw)[0].physical_offset if queue.is_batch else QUEUE_ENTRY.unpack(raw)[0]
        return bool(at < self._cold_before())

    def get(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        max_count: int,
        tags_codes: frozenset[int] | None,
        max_bytes: int = 0,
        properties: PropertyFilter | None = None,
    ) -> GetResult:
        """Read as `get_now`, but block for the disk if it is needed."""
        result = self.get_now(queue, offset, max_count, tags_codes, max_bytes, properties)
        return self.finish(result.run()) if isinstance(result, ColdRead) else result

    def get_now(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        max_count: int,
        tags_codes: frozenset[int] | None,
        max_bytes: int = 0,
        properties: PropertyFilter | None = None,
    ) -> GetResult | ColdRead:
        """Return messages of a queue from `offset` on; `tags_codes` selects by tag hash, None takes all.

        `max_bytes`: how much the client accepts, 0 if it does not say. If that is more than the usual limit,
        the limits of bulk pulls apply. `properties`: a filter in addition to the tags.
        """
        began_at = monotonic()
        result = self._look(queue, offset, max_count, tags_codes, max_bytes, properties, began_at)
        if isinstance(result, GetResult):
            self._note_time(began_at)
        return result

    def _look(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        max_count: int,
        tags_codes: frozenset[int] | None,
        max_bytes: int,
        properties: PropertyFilter | None,
        began_at: float,
    ) -> GetResult | ColdRead:
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        lowest, highest = queue.min_offset, queue.max_offset
        if highest == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, lowest, highest)
        if offset < lowest:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, lowest, lowest, highest)
        if offset == highest:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, lowest, highest)
        if offset > highest:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, highest, lowest, highest)
        counts_cold = self._settings.cold_data_flow_control_enable
        if highest - offset <= min(_FEW, max_count) and properties is None and not counts_cold:
            newest = self._newest(queue, offset, tags_codes)
            if newest is not None:
                return self._counted(newest)
        limits = self._bulk_limits(max_bytes)
        most = self._settings.max_transfer_count_in_memory if limits is None else limits.count
        wanted = min(max(1, max_count), most)
        request = ReadRequest(queue, offset, wanted, tags_codes, self._recent_from(), limits, properties)
        selection: Selection | None = None
        try:
            raw = queue.read_now(offset, self._selector.entries_wanted(request))
            if raw is None:
                raise ColdData
            if properties is not None and raw:
                filtered = self._selector.filter(request, raw, self.warm)
                if counts_cold and not self._counts_disk_alone:
                    filtered.result.cold_bytes = self._cold_bytes(filtered.tested)
                return self._counted(filtered.result)
            selected = self._selector.select(request, raw, may_block=False)
            if isinstance(selected, GetResult):
                return selected
            selection = selected
            if selection.begins_in_gap or (selection.is_old and not self.warm.is_exact):
                raise ColdData
            result = fetch(request, selection, self.warm.read)
        except ColdData:
            ahead = self._sequential_reads if self._settings.data_read_ahead_enable else None
            cold_log = ColdLog(self._log.files, ahead)
            return ColdRead(self._selector, request, selection, cold_log, began_at)
        if counts_cold and not self._counts_disk_alone:
            result.cold_bytes = self._cold_bytes(selection.entries)
        return self._counted(result)

    def _newest(
        self, queue: ConsumeQueue, offset: int, tags_codes: frozenset[int] | None
    ) -> GetResult | None:
        """Fast path for a consumer at the tail of the queue: read the few messages up to its end directly.

        None if a message is not in memory or not wanted, or anything else is unusual.
        """
        settings = self._settings
        raw = None if queue.is_batch else queue.read_now(offset, settings.max_transfer_count_in_memory)
        if not raw:
            return None
        recent_from = self._recent_from()
        left = settings.max_transfer_bytes_in_memory
        records: list[bytes] = []
        try:
            for physical_offset, size, tags_code in _iter_entries(raw):
                left -= size
                if physical_offset < recent_from or left < 0:
                    return None
                if tags_codes is not None and tags_code not in tags_codes:
                    return None
                record = self.warm.read(physical_offset, size)
                if record is None:
                    return None
                records.append(bytes(record))
        except ColdData:
            return None
        count = len(records)
        body = records[0] if count == 1 else b"".join(records)
        return GetResult(
            GetStatus.FOUND, offset + count, queue.min_offset, queue.max_offset, body, count, False
        )

    def finish(self, cold: ColdRead) -> GetResult:
        """Return the result of a cold read that has been run, and count it."""
        assert cold.result is not None
        self.statistics.cold_reads += 1
        self.statistics.cold_bytes += cold.bytes_read
        if cold.began_at:
            self._note_time(cold.began_at)
        if self._settings.cold_data_flow_control_enable:
            cold.result.cold_bytes = cold_bytes = self._cold_bytes(cold.examined)
            if cold_bytes and self._counts_disk_alone:
                # Later reads will find these bytes in memory.
                cold.result.cold_bytes += cold.bytes_ahead
        return self._counted(cold.result)

    def record_now(self, physical_offset: int, known_size: int = 0) -> bytes | None:
        """Return the record that begins at a physical offset; None if no valid one does.

        `known_size`: the size of a record that this process has written there, which is not checked again.
        Raises OSError, and ColdData if the record is not in memory.
        """
        if not self.warm.is_exact and not self.is_recent(physical_offset):
            raise ColdData
        if known_size:
            known = self.warm.read(physical_offset, known_size)
            return None if known is None else bytes(known)
        head = self.warm.read(physical_offset, 4)
        size = 0 if head is None else int.from_bytes(head, "big")
        if size < MIN_RECORD_BYTES:
            return None
        found = self.warm.read(physical_offset, size)
        record = None if found is None else bytes(found)
        return None if record is None or parse_record(record, 0, physical_offset) is None else record

    def store_timestamp_now(self, physical_offset: int) -> int:
        """Return when the record at a log offset was stored, in ms; -1 if none begins there.

        Raises OSError, and ColdData if the record is not in memory.
        """
        head = self.warm.read(physical_offset, MIN_RECORD_BYTES)
        return -1 if head is None else store_timestamp_at(bytes(head), 0)

    def _bulk_limits(self, max_bytes: int) -> TransferLimits | None:
        """Return the limits of a pull whose client accepts `max_bytes`; None: the limits of all pulls.

        They apply wherever the messages are: old ones are read in a thread, and fewer reads are better.
        """
        settings = self._settings
        most_bytes, usual_bytes = settings.max_transfer_bytes_in_bulk, settings.max_transfer_bytes_in_memory
        if max_bytes <= usual_bytes or most_bytes <= usual_bytes:
            return None
        count = max(settings.max_transfer_count_in_bulk, settings.max_transfer_count_in_memory)
        return TransferLimits(count, min(max_bytes, most_bytes))

    def _recent_from(self) -> int:
        recent_bytes = self.memory_bytes * self._settings.access_message_in_memory_max_ratio // 100
        return self._log.max_offset - recent_bytes

    def _cold_before(self) -> int:
        """Return the log offset before which messages may be cold (Apache: checkInColdAreaByCommitOffset)."""
        hot_bytes = self.memory_bytes * self._settings.access_message_in_memory_hot_ratio // 100
        return self._log.max_offset - hot_bytes

    @property
    def _counts_disk_alone(self) -> bool:
        """Whether only reads from the disk count as cold. Without RWF_NOWAIT, the distance decides alone."""
        return self._settings.cold_data_scan_enable and self.warm.is_exact

    def _cold_bytes(self, entries: Sequence[Entry | BatchEntry]) -> int:
        """Return how much of the log these entries have where messages may be cold."""
        before = self._cold_before()
        return sum([entry[1] for entry in entries if entry[0] < before and entry[1] != PLACEHOLDER_SIZE])

    def _note_time(self, began_at: float) -> None:
        elapsed_seconds = monotonic() - began_at
        statistics = self.statistics
        statistics.longest_read_seconds = max(statistics.longest_read_seconds, elapsed_seconds)

    def _counted(self, result: GetResult) -> GetResult:
        self.statistics.messages_got += result.count
        self.statistics.bytes_got += len(result.body)
        return result
