"""Which queue a message goes to: in turn, by the caller's choice, or by a hash of a key."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from rmq_remoting.java_hash import string_hash_code
from rmq_remoting.message import Message
from rmq_remoting.message_queue import MessageQueue

QueueSelector = Callable[[Sequence[MessageQueue], Message, object], MessageQueue]
"""Chooses one of a topic's queues for a message; the third argument is what `send` got as `key`."""


def by_key_hash(queues: Sequence[MessageQueue], message: Message, key: object) -> MessageQueue:
    """The same queue for the same key, as long as the number of queues stays.

    For texts and integers it chooses as Apache's Java client does (5.3.3, SelectMessageQueueByHash):
    producers in both languages put a key into the same queue.
    """
    # Java's remainder has the sign of the hash, and Apache takes its absolute value.
    return queues[abs(_java_hash(key)) % len(queues)]


def by_random(queues: Sequence[MessageQueue], message: Message, key: object) -> MessageQueue:
    """Any queue."""
    return queues[random.randrange(len(queues))]


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
    """What rotation chooses from: something that lies on a broker."""

    @property
    def broker_name(self) -> str:
        """The broker's name."""


L = TypeVar("L", bound=OnBroker)


class Rotation(Generic[L]):
    """Takes one after the other, beginning anywhere, so that many producers do not march in step."""

    __slots__ = ("_next", "items")

    def __init__(self, items: Sequence[L], start: int | None = None) -> None:
        """`items` is not empty."""
        self.items = tuple(items)
        first = random.randrange(len(self.items)) if start is None else start
        self._next = itertools.count(first).__next__

    def take(self) -> L:
        """The next one."""
        items = self.items
        return items[self._next() % len(items)]

    def take_off(self, broker_name: str) -> L:
        """The next one that is not on `broker_name`; if all are, just the next one."""
        for _ in self.items:
            item = self.take()
            if item.broker_name != broker_name:
                return item
        return self.take()
