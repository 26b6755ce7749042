"""Selecting the entries of a queue whose messages a read returns: by tags, by properties and by limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..queues.batch_consume_queue import BatchEntry, batch_entries
from ..queues.consume_queue import QUEUE_ENTRY, ConsumeQueue, Entry
from ..queues.entry_file import PLACEHOLDER_SIZE
from ..settings import PullSettings
from .log_ranges import ColdData, ColdLog, WarmLog
from .property_filter import (
    EntryRange,
    FilterLimits,
    PropertyFilter,
    filter_records,
    may_match,
    within_budget,
)
from .results import GetResult, GetStatus
from .tag_search import find_tagged, has_hashes_alone

_iter_entries = QUEUE_ENTRY.iter_unpack
_entry_at: Callable[[bytes, int], Entry] = QUEUE_ENTRY.unpack_from
# Hashes have 32 bits, times are positive: a smaller tags code is an address in the queue's extension files.
_SMALLEST_HASH: Final = -(1 << 31)
# For a rare tag, this multiple of the usual number of entries is searched in addition, as bytes.
_MORE_FOR_RARE_TAGS: Final = 19


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """How many messages, and how many bytes of them, a read returns at most."""

    count: int
    size_bytes: int


@dataclass(slots=True, init=False)
class ReadRequest:
    """A read of a queue.

    Messages before the log offset `recent_from` count as old. `limits` is None if the limits depend on where
    the messages are. `properties` filters the messages that `tags_codes` takes; None takes all.
    """

    queue: ConsumeQueue
    offset: int
    max_count: int
    tags_codes: frozenset[int] | None
    recent_from: int
    limits: TransferLimits | None
    properties: PropertyFilter | None

    # Written out, as every read calls it: a compiled class keeps a dataclass's own as interpreted code.
    def __init__(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_count: int,
        tags_codes: frozenset[int] | None,
        recent_from: int,
        limits: TransferLimits | None,
        properties: PropertyFilter | None = None,
    ) -> None:
        self.queue = queue
        self.offset = offset
        self.max_count = max_count
        self.tags_codes = tags_codes
        self.recent_from = recent_from
        self.limits = limits
        self.properties = properties


@dataclass(slots=True, init=False)
class Selection:
    """The entries whose messages a read returns, and the offset to read on from.

    `messages` is the number of messages in the record of each entry; None: one in each.
    """

    entries: Sequence[Entry | BatchEntry]
    total_bytes: int
    next_offset: int
    is_old: bool
    messages: list[int] | None

    def __init__(
        self,
        entries: Sequence[Entry | BatchEntry],
        total_bytes: int,
        next_offset: int,
        is_old: bool,
        messages: list[int] | None = None,
    ) -> None:
        self.entries = entries
        self.total_bytes = total_bytes
        self.next_offset = next_offset
        self.is_old = is_old
        self.messages = messages

    @property
    def begins_in_gap(self) -> bool:
        """Whether a gap of the queue is to be skipped: a thread searches for its end, entry by entry."""
        return self.entries[0][1] == PLACEHOLDER_SIZE

    def count_of(self, indexes: Sequence[int]) -> int:
        """Return how many messages the records of these entries hold."""
        return len(indexes) if self.messages is None else sum([self.messages[index] for index in indexes])


class FilteredRead(NamedTuple):
    """The result of a read with a property filter, and the entries whose messages the filter tested."""

    result: GetResult
    tested: Sequence[Entry | BatchEntry] = ()


class EntrySelector:
    """Selects entries within the limits of the pull settings; for any thread."""

    def __init__(self, settings: PullSettings) -> None:
        self._settings = settings

    def entries_wanted(self, request: ReadRequest) -> int:
        """Return how many entries of the queue are examined at most."""
        if request.properties is not None:
            return min(self._entries_to_filter(request), request.properties.most_messages)
        return request.max_count if request.tags_codes is None else self._entries_to_filter(request)

    def _entries_to_filter(self, request: ReadRequest) -> int:
        return max(self._settings.max_filter_message_bytes // request.queue.entry_bytes, request.max_count)

    # --- by tags ---

    def select(self, request: ReadRequest, raw: bytes, *, may_block: bool) -> Selection | GetResult:
        """Select among the packed entries `raw` of the queue; a result if no entry is selected.

        Raises OSError, and ColdData if the disk is needed and the call may not block.
        """
        queue, tags_codes = request.queue, request.tags_codes
        if not raw:
            return GetResult(GetStatus.OFFSET_FOUND_NULL, request.offset, queue.min_offset, queue.max_offset)
        if queue.is_batch:
            return self._select_batches(request, batch_entries(raw), may_block)
        if tags_codes is not None and has_hashes_alone(raw):
            return self._select_tagged(request, raw, tags_codes, may_block)
        entries = list(_iter_entries(raw))
        is_old = entries[0][0] < request.recent_from
        count_limit, bytes_limit = self._limits(request, is_old)
        if tags_codes is None and len(entries) <= count_limit:
            total = sum([entry[1] for entry in entries])
            if total <= bytes_limit:
                return Selection(entries, total, request.offset + len(entries), is_old)
        return self._within_limits(request, enumerate(entries), len(entries), is_old, may_block)

    def _select_tagged(
        self, request: ReadRequest, raw: bytes, tags_codes: frozenset[int], may_block: bool
    ) -> Selection | GetResult:
        """Select by hashes. If no message has one of them, many more entries are examined."""
        queue = request.queue
        is_old = _entry_at(raw, 0)[0] < request.recent_from
        count_limit, _ = self._limits(request, is_old)
        found = find_tagged(raw, tags_codes, count_limit + 1)
        examined = len(raw) // QUEUE_ENTRY.size
        if not found and examined == self.entries_wanted(request):
            usual, read = examined, queue.read if may_block else queue.read_now
            more = read(request.offset + usual, usual * _MORE_FOR_RARE_TAGS)
            if more and has_hashes_alone(more):
                raw += more
                found = find_tagged(raw, tags_codes, count_limit + 1)
                examined = len(raw) // QUEUE_ENTRY.size
                if found:
                    # No further than usual from the first: clients pause if their messages' offsets are far
                    # apart (consumeConcurrentlyMaxSpan, 2,000 offsets).
                    examined = min(examined, found[0] + usual)
                    found = [index for index in found if index < examined]
        candidates = [(index, _entry_at(raw, index * QUEUE_ENTRY.size)) for index in found]
        return self._within_limits(request, candidates, examined, is_old, may_block)

    def _within_limits(
        self,
        request: ReadRequest,
        candidates: Iterable[tuple[int, Entry]],
        examined: int,
        is_old: bool,
        may_block: bool,
    ) -> Selection | GetResult:
        """Select the candidates that have the tag, as the limits allow, among `examined` entries."""
        count_limit, bytes_limit = self._limits(request, is_old)
        selected: list[Entry] = []
        total = 0
        for index, entry in candidates:
            if not _has_tag(request, entry[2], may_block):
                continue
            size = entry[1]
            # One message is always returned, however large.
            if selected and (len(selected) >= count_limit or total + size > bytes_limit):
                examined = index
                break
            selected.append(entry)
            total += size
        next_offset = request.offset + examined
        if not selected:
            return none_matches(request.queue, next_offset, is_old)
        return Selection(selected, total, next_offset, is_old)

    def _select_batches(
        self, request: ReadRequest, entries: list[BatchEntry], may_block: bool
    ) -> Selection | GetResult:
        """Select whole records, which may hold several messages each."""
        is_old = entries[0].physical_offset < request.recent_from
        count_limit, bytes_limit = self._limits(request, is_old)
        selected: list[BatchEntry] = []
        total, count, next_offset = 0, 0, request.offset
        for entry in entries:
            if entry.end_offset <= request.offset:
                continue  # before a gap
            if request.tags_codes is None or _has_tag(request, entry.tags_code, may_block):
                full = count + entry.messages > request.max_count or count >= count_limit
                # One record is always returned, however large, and however many messages it holds.
                if selected and (full or total + entry.size > bytes_limit):
                    break
                selected.append(entry)
                total += entry.size
                count += entry.messages
            next_offset = entry.end_offset
        if not selected:
            return none_matches(request.queue, next_offset, is_old)
        return Selection(selected, total, next_offset, is_old, [entry.messages for entry in selected])

    # --- by properties ---

    def filter(self, request: ReadRequest, raw: bytes, log: WarmLog | ColdLog) -> FilteredRead:
        """Read the messages of packed entries that the request's filter takes. Raises ColdData, OSError."""
        assert request.properties is not None
        queue, may_block = request.queue, isinstance(log, ColdLog)
        entries, offsets, end = EntryRange.of(queue, raw, request.offset)
        taken: Sequence[int] = range(len(entries))
        if request.tags_codes is not None:
            taken = [index for index in taken if _has_tag(request, entries[index][2], may_block)]
        if may_block:  # in memory, testing the message costs less than looking up its bit map
            taken = [index for index in taken if may_match(queue, entries[index][2], request.properties)]
        if not taken:
            return FilteredRead(none_matches(queue, end, False))
        candidates = [entries[index] for index in taken]
        is_old, in_gap = candidates[0][0] < request.recent_from, candidates[0][1] == PLACEHOLDER_SIZE
        if isinstance(log, WarmLog) and (in_gap or (is_old and not log.is_exact)):
            raise ColdData
        limits = FilterLimits(request.max_count, *self._limits(request, is_old))
        candidates = candidates[: within_budget(candidates)]
        if isinstance(log, ColdLog):
            log.expect(candidates)
        filtered = filter_records(candidates, log.read, request.properties, limits)
        if filtered.tested < len(taken):
            end = max(request.offset, offsets[taken[filtered.tested]])
        lowest, highest = queue.min_offset, queue.max_offset
        if filtered.count:
            result = GetResult(GetStatus.FOUND, end, lowest, highest, filtered.body, filtered.count, is_old)
        elif filtered.any_exists:
            result = none_matches(queue, end, is_old)
        else:
            end = queue.next_message(end) if in_gap else end
            result = GetResult(GetStatus.MESSAGE_WAS_REMOVING, end, lowest, highest, reads_old_data=is_old)
        return FilteredRead(result, candidates[: filtered.tested])

    # --- limits ---

    def _limits(self, request: ReadRequest, is_old: bool) -> tuple[int, int]:
        """Return how many messages, and how many bytes of them, are returned at most."""
        settings = self._settings
        if request.limits is not None:
            count, size = request.limits.count, request.limits.size_bytes
        elif is_old:
            count, size = settings.max_transfer_count_on_disk, settings.max_transfer_bytes_on_disk
        else:
            count, size = settings.max_transfer_count_in_memory, settings.max_transfer_bytes_in_memory
        return min(request.max_count, count), size


def _has_tag(request: ReadRequest, stored_code: int, may_block: bool) -> bool:
    """Whether a message is wanted, by the tags code in its entry or in the queue's extension files."""
    if request.tags_codes is None:
        return True
    if stored_code >= _SMALLEST_HASH:
        return stored_code in request.tags_codes
    if not may_block:
        raise ColdData
    code = request.queue.tags_code(stored_code)
    return code is None or code in request.tags_codes


def none_matches(queue: ConsumeQueue, next_offset: int, is_old: bool) -> GetResult:
    """Return the result of a read that found messages, none of which is wanted."""
    lowest, highest = queue.min_offset, queue.max_offset
    return GetResult(GetStatus.NO_MATCHED_MESSAGE, next_offset, lowest, highest, reads_old_data=is_old)
