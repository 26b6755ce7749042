"""Descriptors kept in reserve for files.

Connections that come in a burst are accepted first and refused then, in one iteration of the event loop.
Meanwhile they may hold every free descriptor. A file that is opened in that moment takes one of the reserve.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

_RESERVED: Final = 8
# Not taken for the reserve: an event loop that has none left cannot even end the connections that wait.
_LEFT_FREE: Final = 8

T = TypeVar("T")


class DescriptorReserve:
    """Descriptors that are given up when a call fails for lack of one; for any thread."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self._wanted = 0
        self._lock = Lock()

    @property
    def held(self) -> int:
        """The number of descriptors in reserve."""
        return len(self._held)

    def fill(self, count: int = _RESERVED) -> None:
        """Keep `count` descriptors, or as many as there are; those given up are taken back later."""
        with self._lock:
            self._wanted = count
            while len(self._held) > count:
                os.close(self._held.pop())
            self._refill()

    def call(self, function: Callable[[], T]) -> T:
        """Call a function that needs a descriptor; again without one of the reserve, while there is any.

        Raises what the function raises.
        """
        while True:
            try:
                result = function()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._give_up_one():
                    raise
            else:
                if len(self._held) < self._wanted:
                    with self._lock:
                        self._refill()
                return result

    def _give_up_one(self) -> bool:
        with self._lock:
            if not self._held:
                return False
            os.close(self._held.pop())
            return True

    def _refill(self) -> None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            while len(self._held) < self._wanted:
                descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                # The kernel gives the lowest free number: a high one tells that few are free.
                if limit != resource.RLIM_INFINITY and descriptor >= limit - _LEFT_FREE:
                    os.close(descriptor)
                    return
                self._held.append(descriptor)
        except OSError:  # there is none; the next call tries again
            return


# Descriptors belong to the process. A daemon fills the reserve; a program that uses the SDK has none.
RESERVE: Final = DescriptorReserve()


def open_file(path: Path | str, flags: int, mode: int = 0o644) -> int:
    """Open a file like `os.open`, if necessary with a descriptor of the reserve. Raises OSError."""
    return RESERVE.call(partial(os.open, path, flags | os.O_CLOEXEC, mode))


def map_file(descriptor: int, size: int) -> mmap.mmap:
    """Map a file, which takes another descriptor, if necessary one of the reserve. Raises OSError."""
    return RESERVE.call(partial(mmap.mmap, descriptor, size))
