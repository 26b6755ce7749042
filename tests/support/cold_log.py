"""A commit log whose records are not in the page cache, so that each read needs the disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from rmq_broker.store.api import MessageStore


def make_cold(store: MessageStore) -> None:
    """Have the event loop's reads find no record in memory; reads in threads find all of them."""
    store.reader.warm.preadv = _nothing_in_memory


def make_warm(store: MessageStore) -> None:
    """Undo `make_cold`."""
    store.reader.warm.preadv = os.preadv


def _nothing_in_memory(descriptor: int, buffers: Sequence[memoryview], position: int, flags: int) -> int:
    raise BlockingIOError(errno.EAGAIN, "not in memory")
