"""Reading a queue: which messages a pull gets (Apache RocketMQ 5.3.3, DefaultMessageStore.getMessage)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from ..log.commit_log import CommitLog
from ..log.record import MIN_RECORD_BYTES, parse_record
from ..queues.batch_consume_queue import Unit, iter_units
from ..queues.consume_queue import QUEUE_ENTRY, ConsumeQueue, Entry
from ..queues.entry_file import PLACEHOLDER_SIZE
from ..settings import PullSettings
from .log_ranges import Backlogs, ColdData, ColdLog, Preadv, ReadRange, WarmLog, read_records
from .property_filter import Limits, PropertyFilter, Stretch, may_match, pick, within_reason
from .tag_search import find_tagged, has_hashes_alone

_iter_entries = QUEUE_ENTRY.iter_unpack
_entry_at: Callable[[bytes, int], Entry] = QUEUE_ENTRY.unpack_from
# Hashes have 32 bits, times are positive: below is the address of a tags code in the queue's extension files.
_SMALLEST_HASH: Final = -(1 << 31)
# Who keeps up with a queue finds so many messages at most, mostly one.
_FEW: Final = 4
# So many times the usual number of entries is searched besides, for bytes, where a tag is rare.
_MORE_FOR_RARE_TAGS: Final = 19


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


@dataclass(slots=True)
class ReadStatistics:
    """Plain counters for metrics and runtime information; they belong to the loop."""

    messages_got: int = 0
    bytes_got: int = 0
    cold_reads: int = 0
    cold_bytes: int = 0  # read from the disk, or from what was read ahead of it


@dataclass(slots=True)
class _Ask:
    """What a read wants."""

    queue: ConsumeQueue
    offset: int
    max_count: int
    tags_codes: frozenset[int] | None
    recent_from: int  # log offset
    limits: _Limits | None  # None: by where the messages are
    properties: PropertyFilter | None = None  # filters what `tags_codes` takes


@dataclass(frozen=True, slots=True)
class _Limits:
    """How much is given at most."""

    count: int
    size_bytes: int


@dataclass(slots=True)
class _Choice:
    """The entries whose messages make the answer, and where the next read goes on."""

    entries: Sequence[Entry | Unit]
    total_bytes: int
    next_offset: int
    is_old: bool
    messages: list[int] | None = None  # in the record of each entry; None: one

    @property
    def needs_thread(self) -> bool:
        """Whether a gap of the queue has to be passed over: its end is looked for entry by entry."""
        return self.entries[0][1] == PLACEHOLDER_SIZE

    def count_of(self, there: Sequence[int]) -> int:
        """How many messages the records of these entries (indexes) hold."""
        return len(there) if self.messages is None else sum([self.messages[index] for index in there])


class _Filtered(NamedTuple):
    """What a filter took of some entries, and the entries whose messages it looked at."""

    result: GetResult
    looked_at: Sequence[Entry | Unit] = ()


class Reader:
    """Reads messages for consumers.

    On the loop nothing waits for a disk: what is not in memory is given back as a `ColdRead`.
    """

    def __init__(self, commit_log: CommitLog, settings: PullSettings, preadv: Preadv = os.preadv) -> None:
        self.statistics = ReadStatistics()
        self._log = commit_log
        self._settings = settings
        self._warm = WarmLog(commit_log, preadv)
        self._backlogs = Backlogs()
        self._memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def is_recent(self, physical_offset: int) -> bool:
        """Whether a message is young enough to be in memory still, by estimate."""
        return physical_offset >= self._recent_from()

    def get(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        max_count: int,
        tags_codes: frozenset[int] | None,
        max_bytes: int = 0,
        properties: PropertyFilter | None = None,
    ) -> GetResult:
        """As `get_now`, but waits for the disk where it has to; on the loop's thread, too."""
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
        """Messages of a queue from `offset` on; `tags_codes` selects by tag hash, None takes all.

        `max_bytes`: what the client says it takes; with more than others get it is a pull in bulk.
        `properties`: a filter besides the tags.
        """
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
        if highest - offset <= min(_FEW, max_count) and properties is None:
            newest = self._newest(queue, offset, tags_codes)
            if newest is not None:
                return self._counted(newest)
        limits = self._bulk_limits(max_bytes)
        most = self._settings.max_transfer_count_in_memory if limits is None else limits.count
        wanted = min(max(1, max_count), most)
        ask = _Ask(queue, offset, wanted, tags_codes, self._recent_from(), limits, properties)
        choice: _Choice | None = None
        try:
            raw = queue.read_now(offset, self.entries_wanted(ask))
            if raw is None:
                raise ColdData
            if properties is not None and raw:
                return self._counted(self.filter(ask, raw, self._warm).result)
            chosen = self.choose(ask, raw, may_wait=False)
            if isinstance(chosen, GetResult):
                return chosen
            choice = chosen
            if choice.needs_thread or (choice.is_old and not self._warm.is_exact):
                raise ColdData
            result = fetch(ask, choice, self._warm.read)
        except ColdData:
            return ColdRead(self, ask, choice, ColdLog(self._log.files, self._backlogs))
        return self._counted(result)

    def _newest(
        self, queue: ConsumeQueue, offset: int, tags_codes: frozenset[int] | None
    ) -> GetResult | None:
        """The few messages from `offset` to the end of the queue, for who keeps up with it.

        None where anything is out of the ordinary, or not all of them are wanted.
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
                record = self._warm.read(physical_offset, size)
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
        """The result of a cold read that has been run; back on the loop."""
        assert cold.result is not None
        self.statistics.cold_reads += 1
        self.statistics.cold_bytes += cold.bytes_read
        return self._counted(cold.result)

    def record_now(self, physical_offset: int, known_size: int = 0) -> bytes | None:
        """The record that begins at a physical offset; None where no sound one does.

        `known_size`: of one that this process has written there; it is not looked at again. Raises ColdData
        where it would have to wait for the disk, OSError.
        """
        if not self._warm.is_exact and not self.is_recent(physical_offset):
            raise ColdData
        if known_size:
            known = self._warm.read(physical_offset, known_size)
            return None if known is None else bytes(known)
        head = self._warm.read(physical_offset, 4)
        size = 0 if head is None else int.from_bytes(head, "big")
        if size < MIN_RECORD_BYTES:
            return None
        found = self._warm.read(physical_offset, size)
        record = None if found is None else bytes(found)
        return None if record is None or parse_record(record, 0, physical_offset) is None else record

    def entries_wanted(self, ask: _Ask) -> int:
        """How many entries of the queue are looked at, at most."""
        if ask.properties is not None:
            most = max(self._settings.max_filter_message_bytes // ask.queue.entry_bytes, ask.max_count)
            return min(most, ask.properties.most_messages)
        if ask.tags_codes is None:
            return ask.max_count
        return max(self._settings.max_filter_message_bytes // ask.queue.entry_bytes, ask.max_count)

    def choose(self, ask: _Ask, raw: bytes, *, may_wait: bool) -> _Choice | GetResult:
        """Which of the entries the answer is made of; a result where there is none.

        Raises ColdData where it would have to wait for the disk and may not, OSError.
        """
        queue, tags_codes = ask.queue, ask.tags_codes
        if not raw:
            return GetResult(GetStatus.OFFSET_FOUND_NULL, ask.offset, queue.min_offset, queue.max_offset)
        if queue.is_batch:
            return self._choose_units(ask, list(iter_units(raw)), may_wait)
        if tags_codes is not None and has_hashes_alone(raw):
            return self._choose_tagged(ask, raw, tags_codes, may_wait)
        entries = list(_iter_entries(raw))
        is_old = entries[0][0] < ask.recent_from
        count_limit, bytes_limit = self._limits(ask, is_old)
        if tags_codes is None and len(entries) <= count_limit:
            total = sum([entry[1] for entry in entries])
            if total <= bytes_limit:
                return _Choice(entries, total, ask.offset + len(entries), is_old)
        wanted = ((i, entry) for i, entry in enumerate(entries) if self._wants(ask, entry[2], may_wait))
        return self._take(ask, wanted, len(entries), is_old)

    def _choose_tagged(
        self, ask: _Ask, raw: bytes, tags_codes: frozenset[int], may_wait: bool
    ) -> _Choice | GetResult:
        """As `choose`, by hashes; where no message has them many more entries are looked at."""
        queue = ask.queue
        is_old = _entry_at(raw, 0)[0] < ask.recent_from
        count_limit, _ = self._limits(ask, is_old)
        found = find_tagged(raw, tags_codes, count_limit + 1)
        looked_at = len(raw) // QUEUE_ENTRY.size
        if not found and looked_at == self.entries_wanted(ask):
            usual, read = looked_at, queue.read if may_wait else queue.read_now
            more = read(ask.offset + usual, usual * _MORE_FOR_RARE_TAGS)
            if more and has_hashes_alone(more):
                raw += more
                found = find_tagged(raw, tags_codes, count_limit + 1)
                looked_at = len(raw) // QUEUE_ENTRY.size
                if found:
                    # No further than usual from there: clients pause where they have messages from far apart
                    # (consumeConcurrentlyMaxSpan, 2,000 offsets).
                    looked_at = min(looked_at, found[0] + usual)
                    found = [index for index in found if index < looked_at]
        wanted = ((index, _entry_at(raw, index * QUEUE_ENTRY.size)) for index in found)
        return self._take(ask, wanted, looked_at, is_old)

    def _take(
        self, ask: _Ask, wanted: Iterable[tuple[int, Entry]], looked_at: int, is_old: bool
    ) -> _Choice | GetResult:
        """What the limits allow of the wanted entries; `looked_at` were looked at if all of them are."""
        count_limit, bytes_limit = self._limits(ask, is_old)
        chosen: list[Entry] = []
        total = 0
        for index, entry in wanted:
            size = entry[1]
            # One message is always given, however large.
            if chosen and (len(chosen) >= count_limit or total + size > bytes_limit):
                looked_at = index
                break
            chosen.append(entry)
            total += size
        following = ask.offset + looked_at
        if not chosen:
            return _none_matches(ask.queue, following, is_old)
        return _Choice(chosen, total, following, is_old)

    def _choose_units(self, ask: _Ask, units: list[Unit], may_wait: bool) -> _Choice | GetResult:
        """As `choose`, where an entry may be of several messages: it is given whole or not at all."""
        is_old = units[0].physical_offset < ask.recent_from
        count_limit, bytes_limit = self._limits(ask, is_old)
        chosen: list[Unit] = []
        total, count, following = 0, 0, ask.offset
        for unit in units:
            if unit.end_offset <= ask.offset:
                continue  # before a gap
            if ask.tags_codes is None or self._wants(ask, unit.tags_code, may_wait):
                full = count + unit.messages > ask.max_count or count >= count_limit
                # One record is always given, however large, and however many messages it holds.
                if chosen and (full or total + unit.size > bytes_limit):
                    break
                chosen.append(unit)
                total += unit.size
                count += unit.messages
            following = unit.end_offset
        if not chosen:
            return _none_matches(ask.queue, following, is_old)
        return _Choice(chosen, total, following, is_old, [unit.messages for unit in chosen])

    def filter(self, ask: _Ask, raw: bytes, log: WarmLog | ColdLog) -> _Filtered:
        """The messages of these entries that the ask's properties take. Raises ColdData, OSError."""
        assert ask.properties is not None
        queue, may_wait = ask.queue, isinstance(log, ColdLog)
        entries, offsets, end = Stretch.of(queue, raw, ask.offset)
        taken: Sequence[int] = range(len(entries))
        if ask.tags_codes is not None:
            taken = [index for index in taken if self._wants(ask, entries[index][2], may_wait)]
        if may_wait:  # in memory, looking at the message costs less
            taken = [index for index in taken if may_match(queue, entries[index][2], ask.properties)]
        if not taken:
            return _Filtered(_none_matches(queue, end, False))
        candidates = [entries[index] for index in taken]
        is_old, in_gap = candidates[0][0] < ask.recent_from, candidates[0][1] == PLACEHOLDER_SIZE
        if not may_wait and (in_gap or (is_old and not self._warm.is_exact)):
            raise ColdData
        limits = Limits(ask.max_count, *self._limits(ask, is_old))
        candidates = candidates[: within_reason(candidates)]
        if isinstance(log, ColdLog):
            log.expect(candidates)
        picked = pick(candidates, log.read, ask.properties, limits)
        if picked.looked_at < len(taken):
            end = max(ask.offset, offsets[taken[picked.looked_at]])
        lowest, highest = queue.min_offset, queue.max_offset
        if picked.count:
            result = GetResult(GetStatus.FOUND, end, lowest, highest, picked.body, picked.count, is_old)
        elif picked.any_there:
            result = _none_matches(queue, end, is_old)
        else:
            end = queue.next_message(end) if in_gap else end
            result = GetResult(GetStatus.MESSAGE_WAS_REMOVING, end, lowest, highest, reads_old_data=is_old)
        return _Filtered(result, candidates[: picked.looked_at])

    def _limits(self, ask: _Ask, is_old: bool) -> tuple[int, int]:
        """How many messages are given, and how many bytes, at most."""
        settings = self._settings
        if ask.limits is not None:
            count, size = ask.limits.count, ask.limits.size_bytes
        elif is_old:
            count, size = settings.max_transfer_count_on_disk, settings.max_transfer_bytes_on_disk
        else:
            count, size = settings.max_transfer_count_in_memory, settings.max_transfer_bytes_in_memory
        return min(ask.max_count, count), size

    def _bulk_limits(self, max_bytes: int) -> _Limits | None:
        """The limits of a pull whose client takes so many bytes; None where they are those of all pulls.

        Wherever the messages are: what is on the disk is read in a thread, and the fewer reads the better.
        """
        settings = self._settings
        most_bytes, usual_bytes = settings.max_transfer_bytes_in_bulk, settings.max_transfer_bytes_in_memory
        if max_bytes <= usual_bytes or most_bytes <= usual_bytes:
            return None
        count = max(settings.max_transfer_count_in_bulk, settings.max_transfer_count_in_memory)
        return _Limits(count, min(max_bytes, most_bytes))

    @staticmethod
    def _wants(ask: _Ask, stored_code: int, may_wait: bool) -> bool:
        """Whether a message is wanted, by the tags code in its entry, or in the queue's extension files."""
        if ask.tags_codes is None:
            return True
        if stored_code >= _SMALLEST_HASH:
            return stored_code in ask.tags_codes
        if not may_wait:
            raise ColdData
        code = ask.queue.tags_code(stored_code)
        return code is None or code in ask.tags_codes

    def _recent_from(self) -> int:
        recent_bytes = self._memory_bytes * self._settings.access_message_in_memory_max_ratio // 100
        return self._log.max_offset - recent_bytes

    def _counted(self, result: GetResult) -> GetResult:
        self.statistics.messages_got += result.count
        self.statistics.bytes_got += len(result.body)
        return result


class ColdRead:
    """A read that needs the disk: `run` and `read_ahead` in a thread, `Reader.finish` on the loop in between.

    It goes on where the loop found that it does: with the entries of the queue, or with the log.
    """

    __slots__ = ("_ask", "_choice", "_log", "_looked_at", "_reader", "result")

    def __init__(self, reader: Reader, ask: _Ask, choice: _Choice | None, log: ColdLog) -> None:
        self.result: GetResult | None = None
        self._reader = reader
        self._ask = ask
        self._choice = choice
        self._looked_at: Sequence[Entry | Unit] = ()
        self._log = log

    @property
    def bytes_read(self) -> int:
        """How much of the log was read."""
        return self._log.bytes_read

    def run(self) -> ColdRead:
        """Read; blocks. Raises OSError."""
        ask, reader = self._ask, self._reader
        if self._choice is None:
            raw = ask.queue.read(ask.offset, reader.entries_wanted(ask))
            if ask.properties is not None and raw:
                self.result, self._looked_at = reader.filter(ask, raw, self._log)
                return self
            chosen = reader.choose(ask, raw, may_wait=True)
            if isinstance(chosen, GetResult):
                self.result = chosen
                return self
            self._choice = chosen
        self._looked_at = self._choice.entries
        self._log.expect(self._looked_at)
        self.result = fetch(ask, self._choice, self._log.read)
        return self

    def read_ahead(self) -> None:
        """Have the system read what follows, where this is a backlog that is read through."""
        if self._looked_at:
            first, last = self._looked_at[0], self._looked_at[-1]
            queue = self._ask.queue
            self._log.read_ahead((queue.topic, queue.queue_id), first[0], last[0] + last[1])


def fetch(ask: _Ask, choice: _Choice, read: ReadRange) -> GetResult:
    """The messages of the chosen entries. Raises ColdData, OSError, as `read` does."""
    queue, entries, following = ask.queue, choice.entries, choice.next_offset
    lowest, highest = queue.min_offset, queue.max_offset
    first, last = entries[0], entries[-1]
    if last[0] + last[1] - first[0] == choice.total_bytes:
        # They stand side by side: one range.
        whole = read(first[0], choice.total_bytes)
        if whole is not None:
            body, count = bytes(whole), choice.count_of(range(len(entries)))
            return GetResult(GetStatus.FOUND, following, lowest, highest, body, count, choice.is_old)
    # What has been removed from the log meanwhile is left out.
    body, there = read_records(entries, read)
    if not there:
        if first[1] == PLACEHOLDER_SIZE:
            following = queue.next_message(following)
        return GetResult(
            GetStatus.MESSAGE_WAS_REMOVING, following, lowest, highest, reads_old_data=choice.is_old
        )
    return GetResult(GetStatus.FOUND, following, lowest, highest, body, choice.count_of(there), choice.is_old)


def _none_matches(queue: ConsumeQueue, following: int, is_old: bool) -> GetResult:
    lowest, highest = queue.min_offset, queue.max_offset
    return GetResult(GetStatus.NO_MATCHED_MESSAGE, following, lowest, highest, reads_old_data=is_old)
