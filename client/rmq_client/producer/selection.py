"""Selection of queues: in turn, by the caller's choice, or by the hash of a key."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Sequence
from typing import Generic, Protocol, TypeVar

from rmq_remoting.java_hash import string_hash_code
from rmq_remoting.message import Message
from rmq_remoting.message_queue import MessageQueue

from ..errors import UsageError

QueueSelector = Callable[[Sequence[MessageQueue], Message, object], MessageQueue]
"""Selects one of a topic's queues for a message; the third argument is the `key` of `send`."""


def by_key_hash(queues: Sequence[MessageQueue], message: Message, key: object) -> MessageQueue:
    """Return the queue of a key, which stays the same as long as the number of queues does.

    For texts and integers the choice is that of Apache's Java client (5.3.3, SelectMessageQueueByHash), so
    that producers in both languages send a key to the same queue.
    """
    # Java's remainder has the sign of the hash, and Apache takes its absolute value.
    return queues[abs(_java_hash(key)) % len(queues)]


def by_random(queues: Sequence[MessageQueue], message: Message, key: object) -> MessageQueue:
    """Return a random queue."""
    return queues[random.randrange(len(queues))]


def select_queue(
    queues: Sequence[MessageQueue],
    message: Message,
    queue: MessageQueue | None,
    selector: QueueSelector | None,
    key: object,
) -> MessageQueue:
    """Return the queue that a selector chooses, or that the hash of the key selects without a selector.

    Raises UsageError for a `queue` besides, and for a selector that returns no queue.
    """
    if queue is not None:
        raise UsageError("give either a queue, or a selector or key that selects one")
    chosen = (selector or by_key_hash)(queues, message, key)
    if not isinstance(chosen, MessageQueue):
        raise UsageError(f"the selector must return one of the queues, not {chosen!r}")
    return chosen


def _java_hash(key: object) -> int:
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, int):
        if -(1 << 31) <= key < 1 << 31:
            return key
        folded = (key ^ (key >> 32)) & 0xFFFFFFFF  # java.lang.Long
        return folded - (1 << 32) if folded & 0x80000000 else folded
    return string_hash_code(key if isinstance(key, str) else str(key))


class OnBroker(Protocol):
    """An item of a rotation, which belongs to a broker."""

    @property
    def broker_name(self) -> str:
        """The broker's name."""


L = TypeVar("L", bound=OnBroker)


class RoundRobin(Generic[L]):
    """Returns items in turn from a random start, so that many producers do not move in step.

    Skipped items keep their turns, so that the others stay evenly used. May be used from several threads.
    """

    __slots__ = ("_next", "broker_names", "has_other_brokers", "items")

    def __init__(self, items: Sequence[L], start: int | None = None) -> None:
        """`items` must not be empty."""
        self.items = tuple(items)
        self.broker_names = tuple(dict.fromkeys(item.broker_name for item in self.items))
        self.has_other_brokers = len(self.broker_names) > 1
        first = random.randrange(len(self.items)) if start is None else start
        self._next = itertools.count(first).__next__

    def take(self) -> L:
        """Return the next item."""
        items = self.items
        return items[self._next() % len(items)]

    def take_where(self, accepts: Callable[[L], bool]) -> L | None:
        """Return the next item that is accepted, None if there is none."""
        for _ in self.items:
            item = self.take()
            if accepts(item):
                return item
        return None

    def take_off(self, broker_names: Collection[str]) -> L | None:
        """Return the next item that is not on these brokers, None if there is none."""
        return self.take_where(lambda item: item.broker_name not in broker_names)
