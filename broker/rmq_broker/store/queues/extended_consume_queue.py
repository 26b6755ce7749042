"""Consume queues whose messages have bit maps of consumer filters, in extension files.

A bit map only saves work: it tells which filters cannot have taken a message. If a message has none, readers
test the message itself. So a message without a bit map is entered as if there were no extension files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from .consume_queue import QUEUE_ENTRY, ConsumeQueue
from .entry_file import PLACEHOLDER_SIZE
from .ext_writer import ExtWriter, MessageBitMap
from .extension import ConsumeQueueExt
from .queue_resources import QueueResources

log = logging.getLogger("rmq.store")

# From topic, physical offset and size of a message to its bit map; None if nobody filters the topic.
BitMapLookup = Callable[[str, int, int], MessageBitMap | None]


class ExtendedConsumeQueue(ConsumeQueue):
    """A queue that looks up the bit map of each message before it is entered."""

    __slots__ = ("_bit_map_of", "_ext_file_bytes", "_ext_folder", "_writer", "ext_begin")

    def __init__(
        self,
        folder: Path | str,
        topic: str,
        queue_id: int,
        file_bytes: int,
        resources: QueueResources,
        ext: tuple[Path, int, BitMapLookup],
    ) -> None:
        """`ext`: folder and size in bytes of the queue's extension files, and the look-up of bit maps."""
        super().__init__(folder, topic, queue_id, file_bytes, resources)
        self._ext_folder, self._ext_file_bytes, self._bit_map_of = ext
        self._writer: ExtWriter | None = None
        self.ext_begin = 0  # the position of the first extension file that this run writes

    def put(
        self, physical_offset: int, size: int, tags_code: int, store_timestamp_ms: int = 0, messages: int = 1
    ) -> None:
        """Append one entry."""
        code = self._extended(physical_offset, size, tags_code)
        super().put(physical_offset, size, code, store_timestamp_ms, messages)

    def put_many(self, entries: bytes) -> None:
        """Append packed entries."""
        super().put_many(
            b"".join(
                [
                    QUEUE_ENTRY.pack(offset, size, self._extended(offset, size, tags_code))
                    for offset, size, tags_code in QUEUE_ENTRY.iter_unpack(entries)
                ]
            )
        )

    def delete(self) -> None:
        """Remove the files and their folder. Raises OSError; blocks."""
        self._writer = None
        self.ext_begin = 0
        super().delete()

    def _write_before_entries(self) -> None:
        if self._writer is not None:
            self._writer.write_out()

    def _extended(self, physical_offset: int, size: int, tags_code: int) -> int:
        """Return what the entry holds as tags code: the address of the message's unit, if it has one."""
        if size == PLACEHOLDER_SIZE or self.has_removal:
            return tags_code
        try:
            bit_map = self._bit_map_of(self.topic, physical_offset, size)
        except Exception:  # the message is in the log already: it has to be entered in any case
            log.exception(
                "bit map failed topic=%s queue=%d log_offset=%d; entered without one",
                self.topic,
                self.queue_id,
                physical_offset,
            )
            return tags_code
        if bit_map is None:
            return tags_code
        if self.ext is None:
            self.ext = ConsumeQueueExt(self._ext_folder, self._ext_file_bytes, self._resources)
        if self._writer is None:
            self._writer = ExtWriter(self.ext, self._ext_file_bytes, self._resources, self.ext_begin)
        address = self._writer.append(tags_code, bit_map)
        return tags_code if address is None else address
