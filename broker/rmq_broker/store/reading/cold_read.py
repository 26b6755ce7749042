"""Reads that need the disk: they run in a thread, the event loop does not wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..queues.batch_consume_queue import BatchEntry
from ..queues.consume_queue import ConsumeQueue, Entry
from ..queues.entry_file import PLACEHOLDER_SIZE
from .log_ranges import ColdLog, ReadRange, read_records
from .results import GetResult, GetStatus
from .selection import EntrySelector, ReadRequest, Selection


class ColdRead:
    """A read to be continued: `run` in a thread, `Reader.finish` on the event loop, `read_ahead` in a thread.

    It continues where the event loop needed the disk: at the entries of the queue, or at the log.
    """

    __slots__ = ("_began_at", "_examined", "_log", "_request", "_selection", "_selector", "result")

    def __init__(
        self,
        selector: EntrySelector,
        request: ReadRequest,
        selection: Selection | None,
        log: ColdLog,
        began_at: float = 0.0,
    ) -> None:
        """`selection`: the entries, if they have been selected already; `began_at`: by time.monotonic()."""
        self.result: GetResult | None = None
        self._selector = selector
        self._request = request
        self._selection = selection
        self._examined: Sequence[Entry | BatchEntry] = ()
        self._log = log
        self._began_at = began_at

    @property
    def began_at(self) -> float:
        """When the read began on the event loop, by time.monotonic()."""
        return self._began_at

    @property
    def examined(self) -> Sequence[Entry | BatchEntry]:
        """Entries whose records were read; empty before `run`."""
        return self._examined

    @property
    def bytes_ahead(self) -> int:
        """How many bytes after these records `read_ahead` makes the system read."""
        return self._log.bytes_ahead

    @property
    def queue(self) -> ConsumeQueue:
        """The queue that is read."""
        return self._request.queue

    @property
    def bytes_read(self) -> int:
        """How many bytes of the log were read."""
        return self._log.bytes_read

    def run(self) -> ColdRead:
        """Read; blocks. Raises OSError."""
        try:
            return self._run()
        except OSError:
            if self._request.max_count <= 1:
                raise
        # The message that cannot be read may not keep back those before it.
        self._request, self._selection = replace(self._request, max_count=1), None
        return self._run()

    def _run(self) -> ColdRead:
        request, selector = self._request, self._selector
        if self._selection is None:
            raw = request.queue.read(request.offset, selector.entries_wanted(request))
            if request.properties is not None and raw:
                self.result, self._examined = selector.filter(request, raw, self._log)
                self._plan_ahead()
                return self
            selected = selector.select(request, raw, may_block=True)
            if isinstance(selected, GetResult):
                self.result = selected
                return self
            self._selection = selected
        self._examined = self._selection.entries
        self._log.expect(self._examined)
        self.result = fetch(request, self._selection, self._log.read)
        self._plan_ahead()
        return self

    def _plan_ahead(self) -> None:
        if self._examined:
            first, last = self._examined[0], self._examined[-1]
            queue = self._request.queue
            self._log.plan_ahead((queue.topic, queue.queue_id), first[0], last[0] + last[1])

    def read_ahead(self) -> None:
        """Have the system read the following part of the log, if the queue is being read in order."""
        self._log.read_ahead()


def fetch(request: ReadRequest, selection: Selection, read: ReadRange) -> GetResult:
    """Return the messages of the selected entries. Raises ColdData, OSError, as `read` does."""
    queue, entries, next_offset = request.queue, selection.entries, selection.next_offset
    lowest, highest = queue.min_offset, queue.max_offset
    first, last = entries[0], entries[-1]
    if last[0] + last[1] - first[0] == selection.total_bytes:
        # The records are adjacent: one range.
        whole = read(first[0], selection.total_bytes)
        if whole is not None:
            body, count = bytes(whole), selection.count_of(range(len(entries)))
            return GetResult(GetStatus.FOUND, next_offset, lowest, highest, body, count, selection.is_old)
    # Records that have been removed from the log meanwhile are left out.
    body, found = read_records(entries, read)
    if not found:
        if first[1] == PLACEHOLDER_SIZE:
            next_offset = queue.next_message(next_offset)
        return GetResult(
            GetStatus.MESSAGE_WAS_REMOVING, next_offset, lowest, highest, reads_old_data=selection.is_old
        )
    count = selection.count_of(found)
    return GetResult(GetStatus.FOUND, next_offset, lowest, highest, body, count, selection.is_old)
