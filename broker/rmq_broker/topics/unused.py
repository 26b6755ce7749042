"""Deletion of unused topics: their queues are in the store, but they have no configuration any more.

Apache RocketMQ 5.3.3, DefaultMessageStore.cleanUnusedTopic and cleanExpiredConsumerQueue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from .deletion import TopicDeletion
from .names import LIGHT_QUEUE_PREFIX
from .table import TopicTable

log = logging.getLogger("rmq.broker.topics")

# Topics that are deleted together, before other tasks of the loop run.
_SLICE: Final = 10


class StoredQueue(Protocol):
    """The part of a consume queue that this module needs."""

    @property
    def is_empty(self) -> bool:
        """Whether the queue has no message (any more)."""

    def last_entry(self) -> tuple[int, int, int] | None:
        """Return physical offset, size and tags code of the newest message; may read from disk."""


class StoredQueues(Protocol):
    """The part of the queue table that this module needs."""

    def topics(self) -> list[str]:
        """Return the topics that have queues."""

    def of_topic(self, topic: str) -> Mapping[int, StoredQueue]:
        """Return the queues of a topic by queue id."""


class UnusedTopics:
    """Finds and deletes unused topics, including group offsets and statistics.

    Apache keeps the offsets: if the topic is created again, a group skips as many messages as it had consumed
    of the old topic.
    """

    def __init__(
        self,
        topics: TopicTable,
        queues: StoredQueues,
        deletion: TopicDeletion,
        log_begin: Callable[[], int],
    ) -> None:
        self._topics = topics
        self._queues = queues
        self._deletion = deletion
        self._log_begin = log_begin

    async def delete(self) -> list[str]:
        """Delete all unused topics; return their names. Raises OSError."""
        return await self._delete(self._unused())

    async def delete_without_messages(self) -> list[str]:
        """Delete unused topics without messages in the log; return their names. Raises OSError.

        Apache deletes such queues of existing topics, too. Their offsets then start from 0 again, and groups
        skip the new messages. Here queues of existing topics keep their offsets.
        """
        return await self._delete(await asyncio.to_thread(self._without_messages, self._unused()))

    # --- internals ---

    def _unused(self) -> list[str]:
        return [name for name in self._queues.topics() if self._is_unused(name)]

    def _is_unused(self, name: str) -> bool:
        return (
            name not in self._topics
            and name not in self._topics.system_topics
            and not name.startswith(LIGHT_QUEUE_PREFIX)
        )

    def _without_messages(self, names: Iterable[str]) -> list[str]:
        log_begin = self._log_begin()
        return [
            name
            for name in names
            if all(_is_gone(queue, log_begin) for queue in list(self._queues.of_topic(name).values()))
        ]

    async def _delete(self, names: list[str]) -> list[str]:
        deleted: list[str] = []
        for first in range(0, len(names), _SLICE):
            # Checked again: the topic may have been created since.
            some = [name for name in names[first : first + _SLICE] if self._is_unused(name)]
            await self._deletion.delete(some)
            deleted += some
        if deleted:
            log.warning(
                "queues of unknown topics deleted count=%d topics=%s", len(deleted), ", ".join(deleted)
            )
        return deleted


def _is_gone(queue: StoredQueue, log_begin: int) -> bool:
    last = queue.last_entry()
    return queue.is_empty if last is None else last[0] < log_begin
