"""Deletion of a topic in all parts of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Protocol

from rmq_remoting.pop_receipt import pop_retry_topics

from ..statistics.broker_statistics import BrokerStatistics
from .table import TopicTable


class CommittedOffsets(Protocol):
    """The consumer offsets, as far as the deletion of topics needs them."""

    def remove_topic(self, topic: str) -> int:
        """Forget the offsets for a topic; return the number of groups that had some."""

    def groups_of(self, topic: str) -> Iterable[str]:
        """Return the groups that have offsets for a topic."""


class QueueFiles(Protocol):
    """The store, as far as the deletion of topics needs it."""

    def delete_topics(self, names: Sequence[str]) -> Future[None]:
        """Remove the queues of topics; the future is done when the deletion is durable."""


class TopicDeletion:
    """Deletes a topic from the topic table, the store, the offsets and the statistics.

    Everything is deleted at once in memory. The returned future is done when the store has persisted the
    deletion; it raises OSError. The files of topics and offsets are up to the caller.
    """

    def __init__(
        self,
        topics: TopicTable,
        offsets: CommittedOffsets,
        store: QueueFiles,
        statistics: BrokerStatistics,
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._statistics = statistics

    def delete(self, names: Sequence[str]) -> asyncio.Future[None]:
        """Delete topics, and queues and offsets of topics that are no longer in the table."""
        self._topics.delete(names)
        for name in names:
            self._offsets.remove_topic(name)
            self._statistics.forget_topic(name)
        # A caller that is cancelled does not cancel the deletion.
        return asyncio.shield(asyncio.wrap_future(self._store.delete_topics(names)))

    def delete_with_retry_topics(self, topic: str) -> asyncio.Future[None]:
        """Delete a topic and the retry topics that POP groups have for it."""
        candidates = [
            name for group in self._offsets.groups_of(topic) for name in pop_retry_topics(topic, group)
        ]
        return self.delete([topic, *(name for name in candidates if name in self._topics)])
