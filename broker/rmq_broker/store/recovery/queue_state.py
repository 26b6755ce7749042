"""What this broker remembers of its queues beside their files: where they ended, and which were deleted.

Without it nobody would notice that a queue lost its files, but where the log's newest messages tell of it;
and when queues are built again out of the log, deleted topics would come back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from rmq_remoting.daemon.atomic_file import replace_file

from ..queues.consume_queues import ConsumeQueues
from .checkpoint import Checkpoint

log = logging.getLogger("rmq.store")


class QueueMarks:
    """In a file: `{"checkpoint": [log time, queue time], "ends": {topic: {queue id: next offset}},
    "deleted": {topic: end of the log then}}`, the first two as of the last clean stop.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checkpoint: list[int] = []
        self._ends: dict[str, dict[str, int]] = {}
        self._deleted: dict[str, int] = {}

    @property
    def deleted(self) -> Mapping[str, int]:
        """Deleted topics: what stands in the log before so many bytes is none of theirs any more."""
        return self._deleted

    def load(self) -> None:
        """Read the file; one that cannot be read counts as missing."""
        try:
            content = json.loads(self._path.read_bytes())
            checkpoint = [int(time) for time in content["checkpoint"]]
            ends = {
                topic: {str(int(queue_id)): int(end) for queue_id, end in by_id.items()}
                for topic, by_id in content["ends"].items()
            }
            deleted = {topic: int(offset) for topic, offset in content["deleted"].items()}
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("%s cannot be read, and is left out of account: %r", self._path, error)
            return
        self._checkpoint, self._ends, self._deleted = checkpoint, ends, deleted

    def lacks_entries(self, queues: ConsumeQueues, checkpoint: Checkpoint, *, after_clean_stop: bool) -> bool:
        """Whether a queue goes less far than it did at the last clean stop.

        After a clean stop with another checkpoint another broker has been here, and may have deleted topics:
        the ends say nothing then.
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

    def settle(self, log_end: int) -> None:
        """The log ends here now: what comes behind is of no topic deleted before. Raises OSError."""
        settled = {topic: min(end, log_end) for topic, end in self._deleted.items()}
        if settled != self._deleted:
            self._deleted = settled
            self._save()

    def topics_deleted(self, topics: Sequence[str], log_end: int) -> None:
        """Topics are about to be deleted. Raises OSError; blocks for a file's writing."""
        for topic in topics:
            self._ends.pop(topic, None)
            self._deleted[topic] = log_end
        self._save()

    def stopped(self, queues: ConsumeQueues, checkpoint: Checkpoint, log_begin: int) -> None:
        """Write down how far the queues go, at a clean stop. Raises OSError; blocks."""
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
