"""Topics whose queues are gone in memory, and whose files are being removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class RemovableQueue(Protocol):
    """A queue, as its removal sees it."""

    def delete(self) -> None:
        """Remove the files and their folder. Raises OSError; blocks."""


class TopicRemoval:
    """The removal of some topics' files, in a thread.

    A topic of the same name that is created meanwhile has the same folders. Its queues keep their entries in
    memory until `is_done`.
    """

    __slots__ = ("is_done", "log_end", "queues", "topics")

    def __init__(self, topics: Sequence[str], log_end: int) -> None:
        """`log_end`: the log's end at the deletion. Later messages belong to topics that were recreated."""
        self.topics = tuple(topics)
        self.log_end = log_end
        self.queues: list[RemovableQueue] = []
        self.is_done = False
