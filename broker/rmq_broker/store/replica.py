"""Following another broker's log: its bytes are appended as they are, and entered from what they say.

Apache RocketMQ 5.3.3, DefaultMessageStore.appendToCommitLog and ReputMessageService.
"""

from __future__ import annotations

from collections.abc import Callable

from rmq_remoting.message_properties import find_property

from .dispatch import Dispatcher
from .index.message_index import MessageIndex
from .log.commit_log import CommitLog
from .log.record import RecordSummary, ScanEnd
from .log.record_walk import walk_records
from .queues.consume_queue import ConsumeQueue
from .queues.consume_queues import ConsumeQueues


class Replica:
    """Appends and enters; belongs to the loop's thread."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: MessageIndex,
        on_arrival: Callable[[ConsumeQueue], None],
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._on_arrival = on_arrival
        self._dispatcher = Dispatcher(queues, commit_log, {}, fill_gaps=True, index=self._enter_in_index)
        self.entries_end = commit_log.max_offset  # up to here in the log every message is entered

    def append(self, offset: int, data: bytes) -> None:
        """Append bytes that stand at `offset` in the other log, where this one has to end.

        They may end anywhere: a record is entered when all of it is there. Raises ValueError, OSError;
        nothing was appended then.
        """
        was_empty = not self._log.files
        self._log.append_data(offset, data)
        if was_empty:
            self.entries_end = offset
        self._enter()

    def _enter(self) -> None:
        while (file := self._log.file_of(self.entries_end)) is not None:
            end = ScanEnd()
            position = self.entries_end - file.start
            for record in walk_records(file.map, position, file.start, end):
                if record.physical_offset + record.size > file.start + file.wrote:
                    return
                self._dispatcher.dispatch(record)
                self.entries_end = record.physical_offset + record.size
                self._on_arrival(self._queues.get_or_create(record.topic, record.queue_id))
            if not end.is_full or file.wrote < file.size:
                return
            self.entries_end = file.start + file.size

    def _enter_in_index(self, record: RecordSummary) -> None:
        unique_key = find_property(record.properties, b"UNIQ_KEY") or b""
        keys = find_property(record.properties, b"KEYS") or b""
        self._index.put(record.topic, unique_key, keys, record.physical_offset, record.store_timestamp_ms)
