"""Interfaces of the message store for processors outside of the hot path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..store.api import ExtUnit, KeyQueryResult


class StoreView(Protocol):
    """Offsets and store times of queues.

    A missing queue has no messages: its offsets are 0 and its times -1. Methods that read messages may read
    from disk; processors that use them run in a pool.
    """

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the queue's first message."""

    def reported_min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset in the form for clients: -1 for an empty queue of a BatchCQ topic."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the queue's next message."""

    def assigned_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind all stored messages, also those that consumers do not see yet."""

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        """Return the offset of the first message at or after a time; `upper`: of the last at or before it."""

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Return the store time of the queue's first message in ms; -1 if there is none."""

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of a message in ms; -1 if there is none at that offset."""

    def first_physical_offset(self, topic: str, queue_id: int) -> int | None:
        """Return the physical offset of message 0; None if it does not exist (any more)."""

    def is_first_in_memory(self, topic: str, queue_id: int) -> bool:
        """Whether message 0 exists and is recent enough to be in memory."""

    def runtime_info(self) -> dict[str, str]:
        """Return the store's part of request 28: `commitLogMinOffset`, `commitLogMaxOffset`, disk ratios."""

    def min_phy_offset(self) -> int:
        """Return the first offset of the log."""

    def max_phy_offset(self) -> int:
        """Return the end offset of the log."""


class MessageLookup(Protocol):
    """Messages by key and by physical offset. May read from disk: for processors in a pool."""

    def query_by_key(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> KeyQueryResult:
        """Return physical offsets of messages that may have the key, newest first.

        The messages were stored from `begin_ms` to `end_ms`. `key` is one of a message's keys or its unique
        key. The index holds only hashes, so some messages may have other keys.
        """

    def record_at(self, physical_offset: int) -> bytes | None:
        """Return the stored record at a physical offset; None if no valid record begins there."""


# Physical offset, size in bytes, tags code.
QueueEntry = tuple[int, int, int]


class QueueView(StoreView, Protocol):
    """Additionally, the entries of queues."""

    def queue_entries(
        self, topic: str, queue_id: int, offset: int, max_count: int
    ) -> list[QueueEntry] | None:
        """Return entries of a queue from `offset` on, empty beyond its end; None for a missing queue."""

    def ext_unit(self, topic: str, queue_id: int, address: int) -> ExtUnit | None:
        """Return the unit at an address in a queue's extension files; None without one."""
