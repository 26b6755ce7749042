"""The message store, as the processors that are not the hot path see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..store.api import ExtUnit, KeyQueryResult


class StoreView(Protocol):
    """Where queues begin and end, and when their messages were stored.

    A queue that does not exist has no messages: its offsets are 0, times -1. What looks
    into messages may read from disk: processors that use it run in a pool.
    """

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Offset of the queue's first message."""

    def reported_min_offset(self, topic: str, queue_id: int) -> int:
        """What clients are told of it: -1 for an empty queue of a topic that stores batches as wholes."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Offset that the queue's next message gets."""

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        """Offset of the first message at or after a time; `upper`: of the last at or before it."""

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """When the queue's first message was stored; -1 if there is none."""

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When a message was stored; -1 if there is none at that offset."""

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether there is a message at that offset and it is young enough to be in memory still."""

    def delete_topics(self, names: Sequence[str]) -> None:
        """Remove the queues of topics; their messages go with the log files."""

    def runtime_info(self) -> dict[str, str]:
        """What the store adds to request 28: `commitLogMinOffset`, `commitLogMaxOffset`, disk ratios ..."""

    def min_phy_offset(self) -> int:
        """Where the log begins."""

    def max_phy_offset(self) -> int:
        """Where the log ends."""


class MessageLookup(Protocol):
    """Messages by key and by place. May read from disk: for processors that run in a pool."""

    def query_by_key(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> KeyQueryResult:
        """Where messages lie that may have the key, stored from `begin_ms` to `end_ms`, newest first.

        `key` is one of a message's keys or its unique key. The index knows hashes: others may be among them.
        """

    def record_at(self, physical_offset: int) -> bytes | None:
        """The record that begins at a physical offset, as it is stored; None where no sound one does."""


# Physical offset, size in bytes, tags code.
QueueEntry = tuple[int, int, int]


class QueueView(StoreView, Protocol):
    """Besides, what a queue consists of."""

    def queue_entries(
        self, topic: str, queue_id: int, offset: int, max_count: int
    ) -> list[QueueEntry] | None:
        """Entries of a queue from `offset` on, none where it does not reach; None: there is no such queue."""

    def ext_unit(self, topic: str, queue_id: int, address: int) -> ExtUnit | None:
        """What stands at an address in a queue's extension files."""
