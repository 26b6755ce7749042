"""All consume queues of a store, in `consumequeue/TOPIC/QUEUE ID/` and `batchconsumequeue/`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import Final

from .batch_consume_queue import BATCH_ENTRY_BYTES, BatchConsumeQueue
from .consume_queue import ConsumeQueue
from .descriptors import DEFAULT_DESCRIPTORS
from .extended_consume_queue import BitMapLookup, ExtendedConsumeQueue
from .extension import ConsumeQueueExt
from .queue_resources import QueueResources
from .topic_removal import TopicRemoval

log = logging.getLogger("rmq.store")

_DEFAULT_BATCH_FILE_BYTES: Final = 300_000 * BATCH_ENTRY_BYTES
_DEFAULT_EXT_FILE_BYTES: Final = 48 * 1024 * 1024


class ConsumeQueues:
    """All queues, by topic and queue id."""

    def __init__(
        self,
        folder: Path,
        file_bytes: int,
        *,
        is_batch: Callable[[str], bool] | None = None,
        batch_file_bytes: int = _DEFAULT_BATCH_FILE_BYTES,
        ext_file_bytes: int = _DEFAULT_EXT_FILE_BYTES,
        bit_map_of: BitMapLookup | None = None,
        descriptors: int = DEFAULT_DESCRIPTORS,
    ) -> None:
        """`is_batch` tells which topics have the attribute `queue.type=BatchCQ`; None: none has.

        `bit_map_of`: the look-up of messages' bit maps; None for queues without extension files.
        `descriptors`: how many files are kept open for reading at most.
        """
        self._folder = folder
        self._file_bytes = file_bytes
        self._is_batch = _is_no_batch if is_batch is None else is_batch
        self._batch_folder = folder.parent / "batchconsumequeue"
        self._batch_file_bytes = batch_file_bytes
        self._ext_folder = folder.parent / "consumequeue_ext"
        self._ext_file_bytes = ext_file_bytes
        self._bit_map_of = bit_map_of
        self._resources = QueueResources(descriptors)
        self._by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        self._count = 0
        # Replaced as a whole, with the lock: several threads read it.
        self._removals: tuple[TopicRemoval, ...] = ()
        self._changing_removals = Lock()

    def load(self) -> None:
        """Load each queue that has a folder. Raises StoreDamaged, OSError."""
        batches = set(_queue_folders(self._batch_folder))
        for topic, queue_id in _queue_folders(self._folder):
            if (topic, queue_id) not in batches:
                self._add(topic, queue_id, is_batch=False).load()
        for topic, queue_id in batches:
            if not self._is_batch(topic):
                log.warning(
                    "batch queue of a topic without queue.type=BatchCQ topic=%s queue=%s; read as such",
                    topic,
                    queue_id,
                )
            self._add(topic, queue_id, is_batch=True).load()
        for topic, queue_id in _queue_folders(self._ext_folder):
            ext = ConsumeQueueExt(
                self._ext_folder / topic / str(queue_id), self._ext_file_bytes, self._resources
            )
            queue = self.get(topic, queue_id)
            if queue is None:
                ext.delete()  # no entry refers to these files, and a queue of this name would continue them
                continue
            queue.ext = ext
            if isinstance(queue, ExtendedConsumeQueue):
                queue.ext_begin = ext.end_of_files()

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue; None if it has never been written to."""
        queues = self._by_topic.get(topic)
        return None if queues is None else queues.get(queue_id)

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue; its files are created with the first message."""
        queues = self._by_topic.get(topic)
        queue = None if queues is None else queues.get(queue_id)
        return self._add(topic, queue_id, self._is_batch(topic)) if queue is None else queue

    def _add(self, topic: str, queue_id: int, is_batch: bool) -> ConsumeQueue:
        if is_batch:
            folder = f"{self._batch_folder}/{topic}/{queue_id}"
            queue: ConsumeQueue = BatchConsumeQueue(
                folder, topic, queue_id, self._batch_file_bytes, self._resources
            )
        else:
            folder = f"{self._folder}/{topic}/{queue_id}"
            if self._bit_map_of is None:
                queue = ConsumeQueue(folder, topic, queue_id, self._file_bytes, self._resources)
            else:
                ext = (self._ext_folder / topic / str(queue_id), self._ext_file_bytes, self._bit_map_of)
                queue = ExtendedConsumeQueue(folder, topic, queue_id, self._file_bytes, self._resources, ext)
        for removal in self._removals:
            if topic in removal.topics:
                queue.wait_for(removal)
        self._by_topic.setdefault(topic, {})[queue_id] = queue
        self._count += 1
        self._resources.share_memory(self._count)
        return queue

    def of_topic(self, topic: str) -> dict[int, ConsumeQueue]:
        """Return the queues of a topic by queue id."""
        return self._by_topic.get(topic, {})

    def topics(self) -> list[str]:
        """Return all topics with a queue."""
        return list(self._by_topic)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter([queue for queues in list(self._by_topic.values()) for queue in list(queues.values())])

    # --- writing to files, in the flusher's thread ---

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of entries in memory alone; they grow while the files cannot be written."""
        return sum(queue.unwritten_bytes for queue in set(self._resources.unwritten))

    def write_out(self) -> bool:
        """Write all entries to the files; False if some may have to be rebuilt from the log after a crash.

        That is so while a deletion is under way. Entries of recreated topics wait for it, and those of
        deleted topics count again if the process dies before the deletion is persisted.

        Raises OSError if a queue's entries cannot be written: they stay in memory, all others are written.
        """
        unwritten = self._resources.unwritten
        failure: OSError | None = None
        is_complete = True
        for _ in range(len(unwritten)):
            try:
                is_complete &= unwritten.popleft().write_out()
            except OSError as error:
                failure = error
        if failure is not None:
            raise failure
        return is_complete and not self._removals

    def flush(self) -> None:
        """Wait until all that was written to the files is on disk; blocks.

        Raises OSError. It is unknown then which of it is on disk, and a second fsync would not tell.
        """
        self._resources.flush_files(self._folder)

    # --- deletion ---

    def forget_topics(self, topics: Sequence[str], log_end: int) -> TopicRemoval:
        """Remove the queues of topics in memory, and return the removal of their files, for a thread.

        `log_end`: the log's end now. For the thread that appends; does not block.
        """
        removal = TopicRemoval(topics, log_end)
        for topic in topics:
            for queue in self._by_topic.pop(topic, {}).values():
                queue.retire()
                removal.queues.append(queue)
                self._count -= 1
        with self._changing_removals:
            self._removals += (removal,)
        return removal

    def remove_files(self, removal: TopicRemoval) -> None:
        """Remove the files of deleted topics. Raises OSError, and may be called again then; blocks."""
        for queue in removal.queues:
            queue.delete()
        for topic in removal.topics:
            for root in (self._folder, self._batch_folder, self._ext_folder):
                folder = root / topic
                if folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()
        removal.is_done = True
        with self._changing_removals:
            self._removals = tuple([each for each in self._removals if each is not removal])

    # --- life ---

    def close(self, *, write_out: bool = True) -> None:
        """Close all files; with `write_out`, after writing the entries in memory, as far as possible."""
        if write_out:
            try:
                self.write_out()
            except OSError as error:
                log.warning("queue entries not written cause=%s; the next start rebuilds them", error)
        for queue in self:
            queue.close()
        self._by_topic.clear()
        self._count = 0
        self._resources.unwritten.clear()
        self._resources.to_flush.clear()
        self._resources.descriptors.close()


def _is_no_batch(topic: str) -> bool:
    return False


def _queue_folders(root: Path) -> list[tuple[str, int]]:
    """Return topic and queue id of each queue's folder."""
    found: list[tuple[str, int]] = []
    if not root.is_dir():
        return found
    with os.scandir(root) as topics:
        for topic in sorted(topics, key=attrgetter("name")):
            if topic.is_dir():
                with os.scandir(topic) as queues:
                    for queue in queues:
                        if queue.name.isascii() and queue.name.isdecimal():
                            found.append((topic.name, int(queue.name)))
    return found
