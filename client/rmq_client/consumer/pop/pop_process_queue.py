"""The process queue of a source that is popped."""

from __future__ import annotations

import asyncio

from ..processing.process_queue import ProcessQueue
from ..requests.pop_source import PopSource


class PopProcessQueue(ProcessQueue):
    """Messages of a source, which is all queues of a broker or one of them. Belongs to one loop.

    `last_pull_at` is the start of the last pop. `has_room` is set when there may be room for more messages.
    """

    __slots__ = ("has_room", "source", "unacknowledged")

    def __init__(self, source: PopSource, now: float) -> None:
        super().__init__(source.queue, now)
        self.source = source
        self.unacknowledged = 0
        self.has_room = asyncio.Event()


def pop_queue(process_queue: ProcessQueue) -> PopProcessQueue:
    assert isinstance(process_queue, PopProcessQueue), "popped messages come from such a queue"
    return process_queue
