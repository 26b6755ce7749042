"""Replicating another broker's log: its bytes are appended unchanged, and entries are made from its records.

Apache RocketMQ 5.3.3, DefaultMessageStore.appendToCommitLog and ReputMessageService. Apache's broker writes
the bytes as they arrive. Here a record is appended once it is complete, so that a crash of the process leaves
complete records only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final

from rmq_remoting.message_properties import find_property

from ..delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from ..index.message_index import MessageIndex
from ..log.commit_log import CommitLog
from ..log.mapped_file import HEAD_BYTES
from ..log.record import BLANK_BYTES, MAGIC_BLANK, MIN_RECORD_BYTES, RecordSummary, parse_record
from ..queues.consume_queue import ConsumeQueue
from ..queues.consume_queues import ConsumeQueues
from ..queues.dispatcher import Dispatcher

_unpack_head: Final = Struct(">ii").unpack_from


class Replica:
    """Appends bytes and makes entries; belongs to the event loop's thread."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: MessageIndex,
        on_arrival: Callable[[ConsumeQueue, int], None],
        levels: DelayLevels = DEFAULT_DELAY_LEVELS,
    ) -> None:
        """`on_arrival` is called with the queue of each message, and the store time of the message in ms."""
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._on_arrival = on_arrival
        self._dispatcher = Dispatcher(
            queues, commit_log, {}, fill_gaps=True, index=self._enter_in_index, levels=levels
        )
        self._begin = 0  # the offset at which a log without files begins
        # The beginning of an incomplete record; at most the size of a file.
        self._pending = bytearray()
        self._wanted_bytes = 0  # its size, as far as that is known
        # Records in the log without entries: not entered yet, not confirmed, or entering failed.
        self._to_enter: deque[RecordSummary] = deque()
        self._confirmed: int | None = None  # consumers see no record beyond; None: all of the log

    @property
    def entries_end(self) -> int:
        """The log offset up to which every message has its entries."""
        return self._to_enter[0].physical_offset if self._to_enter else self._log.max_offset

    def append(self, offset: int, data: bytes) -> None:
        """Append bytes of the other log from `offset` on, where the bytes before them ended.

        They may end anywhere: the beginning of an incomplete record is kept in memory. After a restart the
        sender continues at the end of the log, and sends that beginning again. Messages get their entries
        with `enter`, at the latest before the next bytes.

        Raises OSError, and ValueError for bytes that do not follow or are no record. The log still ends with
        a complete record then, and is continued from there.
        """
        if offset != self._end + len(self._pending):
            self._go_on_at(offset)
        self.enter()
        if self._pending:
            self._pending += data
            if len(self._pending) < self._wanted_bytes:
                return
            data = bytes(self._pending)
            self._pending.clear()
        position = 0
        while size := self._append_part(data, position):
            position += size
        self._keep(data[position:])

    def enter(self) -> None:
        """Make the entries of the appended messages that consumers may see. Raises OSError."""
        while self._to_enter:
            record = self._to_enter[0]
            if self._confirmed is not None and record.physical_offset + record.size > self._confirmed:
                return
            self._dispatcher.dispatch(record)
            self._to_enter.popleft()
            queue = self._queues.get_or_create(record.topic, record.queue_id)
            self._on_arrival(queue, record.store_timestamp_ms)

    def confirm(self, offset: int | None) -> None:
        """Let consumers see the log up to `offset`, the whole log if it is None. Raises OSError."""
        self._confirmed = offset
        self.enter()

    @property
    def _end(self) -> int:
        return self._log.max_offset if self._log.files else self._begin

    def _go_on_at(self, offset: int) -> None:
        if self._log.files and offset != self._log.max_offset:
            raise ValueError(f"the log ends at {self._log.max_offset}, bytes of {offset} do not follow")
        self._begin = offset
        self._pending.clear()

    def _keep(self, rest: bytes) -> None:
        """Keep the beginning of an incomplete record."""
        self._pending += rest
        self._wanted_bytes = _unpack_head(rest, 0)[0] if len(rest) >= HEAD_BYTES else HEAD_BYTES

    def _append_part(self, data: bytes, begin: int) -> int:
        """Append the complete records of one file from position `begin` on; return how many bytes."""
        end = self._end
        start = end - begin  # the log offset at which `data` begins
        file_end = self._log.next_file_offset(end) - start
        position, limit = begin, len(data)
        records: list[RecordSummary] = []
        while position < file_end and position + HEAD_BYTES <= limit:
            size, magic = _unpack_head(data, position)
            room = file_end - position
            is_blank = magic == MAGIC_BLANK
            fits = size == room if is_blank else MIN_RECORD_BYTES <= size <= room - BLANK_BYTES
            if not fits:
                raise _no_record_at(start + position)
            if position + size > limit:
                break
            if not is_blank:
                record = parse_record(data, position, start, limit=position + size)
                if record is None:
                    raise _no_record_at(start + position)
                records.append(record)
            position += size
        if position > begin:
            self._log.append_data(end, data[begin:position])
            self._to_enter += records
        return position - begin

    def _enter_in_index(self, record: RecordSummary) -> None:
        unique_key = find_property(record.properties, b"UNIQ_KEY") or b""
        keys = find_property(record.properties, b"KEYS") or b""
        self._index.put(record.topic, unique_key, keys, record.physical_offset, record.store_timestamp_ms)


def _no_record_at(offset: int) -> ValueError:
    return ValueError(f"the bytes of {offset} are no valid record of a log with files of this size")
