"""The file `rmq_queues.json`: where queues ended at the last clean stop, and which topics were deleted.

Without it, a queue whose files got lost would be noticed only if the log's newest messages belong to it. And
deleted topics would reappear when queues are rebuilt from the log.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rmq_remoting.daemon.atomic_file import replace_file
from rmq_remoting.daemon.file_errors import read_file

from ..queues.consume_queues import ConsumeQueues
from .checkpoint import Checkpoint

log = logging.getLogger("rmq.store")

# Deleted topics that the file names at most, the latest ones.
MAX_DELETED: Final = 4096


class QueueStateFile:
    """Content: `{"checkpoint": [log time, queue time], "ends": {topic: {queue id: next offset}},
    "deleted": {topic: end of the log then}}`, the first two as of the last clean stop.

    A deletion is dropped once the log begins behind its messages, or after 4096 later ones. If the queues
    are rebuilt from the whole log, a topic whose deletion was dropped early reappears as an unused topic.
    Apache's broker ignores the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checkpoint: list[int] = []
        self._ends: dict[str, dict[str, int]] = {}
        self._deleted: dict[str, int] = {}

    @property
    def deleted(self) -> Mapping[str, int]:
        """Deleted topics, and the log's end at that time: messages before it belong to no queue any more."""
        return self._deleted

    def load(self) -> None:
        """Read the file; an unreadable file counts as missing."""
        try:
            content = json.loads(read_file(self._path))
            checkpoint = [int(time) for time in content["checkpoint"]]
            ends = {
                topic: {str(int(queue_id)): int(end) for queue_id, end in by_id.items()}
                for topic, by_id in content["ends"].items()
            }
            deleted = {topic: int(offset) for topic, offset in content["deleted"].items()}
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("unreadable file ignored path=%s cause=%r", self._path, error)
            return
        self._checkpoint, self._ends, self._deleted = checkpoint, ends, deleted

    def lacks_entries(self, queues: ConsumeQueues, checkpoint: Checkpoint, *, after_clean_stop: bool) -> bool:
        """Whether a queue ends earlier than it did at the last clean stop.

        A clean stop with another checkpoint was that of another broker, which may have deleted topics. The
        ends in the file mean nothing then.
        """
        if after_clean_stop and self._checkpoint != _times(checkpoint):
            return False
        for topic, ends in self._ends.items():
            for queue_id, end in ends.items():
                queue = queues.get(topic, int(queue_id))
                found = 0 if queue is None else queue.max_offset
                if found < end:
                    log.error("the queue %s/%s has %d of its %d messages", topic, queue_id, found, end)
                    return True
        return False

    def limit_deletions(self, log_end: int) -> None:
        """Limit deletions to the log's present end: later messages belong to topics created again.

        Raises OSError.
        """
        limited = {topic: min(end, log_end) for topic, end in self._deleted.items()}
        if limited != self._deleted:
            self._deleted = limited
            self._save()

    def note_deleted(self, deleted: Mapping[str, int], log_begin: int) -> None:
        """Persist that topics are about to be deleted, with the log's end at each deletion.

        Deletions whose messages are all before `log_begin` are dropped. Raises OSError; blocks.
        """
        for topic in deleted:
            self._ends.pop(topic, None)
        earlier = {
            topic: end for topic, end in self._deleted.items() if end > log_begin and topic not in deleted
        }
        excess = max(0, len(earlier) + len(deleted) - MAX_DELETED)
        self._deleted = dict(list(earlier.items())[excess:]) | dict(deleted)
        self._save()

    def save_ends(self, queues: ConsumeQueues, checkpoint: Checkpoint, log_begin: int) -> None:
        """Persist where the queues end, at a clean stop. Raises OSError; blocks."""
        self._checkpoint = _times(checkpoint)
        self._ends = {}
        for queue in queues:
            if queue.max_offset:
                self._ends.setdefault(queue.topic, {})[str(queue.queue_id)] = queue.max_offset
        self._deleted = {topic: end for topic, end in self._deleted.items() if end > log_begin}
        self._save()

    def _save(self) -> None:
        content = {"checkpoint": self._checkpoint, "ends": self._ends, "deleted": self._deleted}
        replace_file(self._path, json.dumps(content, ensure_ascii=False).encode())


def _times(checkpoint: Checkpoint) -> list[int]:
    return [checkpoint.log_timestamp_ms, checkpoint.queue_timestamp_ms]
