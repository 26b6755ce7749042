"""Topics that exist in the store only: their queues are left from a topic that is not configured any more.

Apache RocketMQ 5.3.3, DefaultMessageStore.cleanUnusedTopic and cleanExpiredConsumerQueue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from .deletion import TopicDeletion
from .table import TopicTable

log = logging.getLogger("rmq.broker.topics")

# Queues of light message queues: they have no topics of their own.
_LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
# Topics that are deleted before others get their turn.
_SLICE: Final = 10


class StoredQueue(Protocol):
    """A consume queue, as far as it is needed here."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no message, or none any more."""

    def last_entry(self) -> tuple[int, int, int] | None:
        """Physical offset, size and tags code of the newest message; may read from disk."""


class StoredQueues(Protocol):
    """All consume queues."""

    def topics(self) -> list[str]:
        """Every topic with a queue."""

    def of_topic(self, topic: str) -> Mapping[int, StoredQueue]:
        """The queues of a topic by queue id."""


class UnusedTopics:
    """Finds and deletes them, with what is left of them elsewhere: offsets of groups, statistics.

    Apache leaves the offsets: a group that consumes the topic when it is there again would pass over as many
    messages as it had consumed of the old one.
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
        """Delete all of them; which. Raises OSError."""
        return await self._delete(self._unused())

    async def delete_without_messages(self) -> list[str]:
        """Delete those whose messages have all gone from the log; which. Raises OSError.

        Apache deletes such queues of existing topics too, and numbers their messages from 0 again, so that
        groups pass over them; here what is left of those keeps the count.
        """
        return await self._delete(await asyncio.to_thread(self._without_messages, self._unused()))

    # --- inside ---

    def _unused(self) -> list[str]:
        return [name for name in self._queues.topics() if self._is_unused(name)]

    def _is_unused(self, name: str) -> bool:
        return (
            name not in self._topics
            and name not in self._topics.system_topics
            and not name.startswith(_LIGHT_QUEUE_PREFIX)
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
            # Asked again: topics are made meanwhile.
            some = [name for name in names[first : first + _SLICE] if self._is_unused(name)]
            self._deletion.delete(some)
            deleted += some
            await asyncio.sleep(0)
        if deleted:
            log.warning("queues of %d topics that do not exist deleted: %s", len(deleted), ", ".join(deleted))
        return deleted


def _is_gone(queue: StoredQueue, log_begin: int) -> bool:
    last = queue.last_entry()
    return queue.is_empty if last is None else last[0] < log_begin
