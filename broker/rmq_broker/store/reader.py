"""Reading a queue: which messages a pull gets (Apache RocketMQ 5.3.3, DefaultMessageStore.getMessage)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum

from ..config import PullSettings
from .commit_log import CommitLog
from .consume_queue import ENTRY, ENTRY_BYTES, PLACEHOLDER_SIZE, ConsumeQueue, Entry

_iter_entries = ENTRY.iter_unpack


class GetStatus(Enum):
    """How a read ended; the names are Apache's, they travel as remarks."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"


@dataclass(slots=True)
class GetResult:
    """What was read, and where the queue stands."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes = b""
    count: int = 0
    reads_old_data: bool = False


class Reader:
    """Reads messages for consumers."""

    def __init__(self, commit_log: CommitLog, settings: PullSettings) -> None:
        self._log = commit_log
        self._settings = settings
        self._memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def is_recent(self, physical_offset: int) -> bool:
        """Whether a message is young enough to be in memory still, by estimate."""
        recent_bytes = self._memory_bytes * self._settings.access_message_in_memory_max_ratio // 100
        return self._log.max_offset - physical_offset <= recent_bytes

    def get(
        self, queue: ConsumeQueue | None, offset: int, max_count: int, tags_codes: frozenset[int] | None
    ) -> GetResult:
        """Messages of a queue from `offset` on; `tags_codes` selects by tag hash, None takes all."""
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
        if max_count <= 0:
            max_count = 1
        if tags_codes is None:
            raw = queue.read(offset, min(max_count, self._settings.max_transfer_count_in_memory))
        else:
            raw = queue.read(offset, max(self._settings.max_filter_message_bytes // ENTRY_BYTES, max_count))
        if not raw:
            return GetResult(GetStatus.OFFSET_FOUND_NULL, offset, lowest, highest)
        return self._collect(queue, list(_iter_entries(raw)), offset, max_count, tags_codes)

    def _collect(
        self,
        queue: ConsumeQueue,
        entries: list[Entry],
        offset: int,
        max_count: int,
        tags_codes: frozenset[int] | None,
    ) -> GetResult:
        settings = self._settings
        lowest, highest = queue.min_offset, queue.max_offset
        old = not self.is_recent(entries[0][0])
        if old:
            count_limit, bytes_limit = (
                settings.max_transfer_count_on_disk,
                settings.max_transfer_bytes_on_disk,
            )
        else:
            count_limit = settings.max_transfer_count_in_memory
            bytes_limit = settings.max_transfer_bytes_in_memory
        count_limit = min(max_count, count_limit)
        chosen: list[Entry] = []
        total, looked_at = 0, 0
        for entry in entries:
            if tags_codes is not None and entry[2] not in tags_codes:
                looked_at += 1
                continue
            size = entry[1]
            # One message is always given, however large.
            if chosen and (len(chosen) >= count_limit or total + size > bytes_limit):
                break
            chosen.append(entry)
            total += size
            looked_at += 1
        following = offset + looked_at
        if not chosen:
            return GetResult(GetStatus.NO_MATCHED_MESSAGE, following, lowest, highest, reads_old_data=old)
        first, last = chosen[0], chosen[-1]
        if last[0] + last[1] - first[0] == total:
            # They stand side by side: one range.
            whole = self._log.read(first[0], total)
            if whole is not None:
                return GetResult(GetStatus.FOUND, following, lowest, highest, whole, len(chosen), old)
        # What has been removed from the log meanwhile is left out.
        records = [data for entry in chosen if (data := self._log.read(entry[0], entry[1])) is not None]
        if not records:
            if first[1] == PLACEHOLDER_SIZE:
                following = queue.next_message(following)
            return GetResult(GetStatus.MESSAGE_WAS_REMOVING, following, lowest, highest, reads_old_data=old)
        return GetResult(GetStatus.FOUND, following, lowest, highest, b"".join(records), len(records), old)
