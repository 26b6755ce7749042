"""A disk whose calls take as long as the test wants, and that tells which of them an event loop has made.

Calls that may wait for a disk are flushes, changes of names and sizes, and blocking reads: `os.fsync`,
`os.unlink`, `os.pread` and so on, and the `flush` of memory maps. Reads with RWF_NOWAIT, and page faults of
memory maps, are not seen.
"""

from __future__ import annotations

import io
import mmap
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Self
from unittest.mock import patch

# The first argument of these calls is a path, or a descriptor.
_CALLS: Final = (
    "fsync",
    "fdatasync",
    "ftruncate",
    "posix_fallocate",
    "pread",
    "pwrite",
    "open",
    "unlink",
    "remove",
    "rename",
    "replace",
    "link",
    "mkdir",
    "rmdir",
    "listdir",
    "scandir",
    "stat",
    "statvfs",
)
# A call that waits for longer is let go, and the test fails.
_LONGEST_WAIT_SECONDS: Final = 30.0


class SlowDisk:
    """Delays the calls on files below a folder while the disk is `stopped`.

    A call on the event loop's thread is not delayed, since the test itself runs there: `on_loop` names it.
    """

    def __init__(self, root: Path) -> None:
        self.waiting = 0
        self.on_loop: list[str] = []
        self._root = str(root.resolve())
        self._loop_thread = threading.get_ident()
        self._may_continue = threading.Event()
        self._may_continue.set()
        self._gave_up = False
        self._counting = threading.Lock()

    @contextmanager
    def installed(self) -> Iterator[Self]:
        """Watch the calls of this process."""
        open_stream, map_flush = io.open, mmap.mmap.flush
        disk = self

        def watched_open(file: Any, *arguments: Any, **options: Any) -> Any:
            self._called("open", file)
            return open_stream(file, *arguments, **options)

        class WatchedMap(mmap.mmap):
            path: str

            def __new__(cls, fileno: int, length: int, *arguments: Any, **options: Any) -> Self:
                created: Self = super().__new__(cls, fileno, length, *arguments, **options)
                created.path = "" if fileno < 0 else _path_of(fileno)
                return created

            def flush(self, *arguments: Any) -> None:
                disk._called("msync", self.path)
                map_flush(self, *arguments)

        with ExitStack() as patches:
            for name in _CALLS:
                patches.enter_context(patch.object(os, name, self._watched(name, getattr(os, name))))
            patches.enter_context(patch.object(io, "open", watched_open))
            patches.enter_context(patch.object(mmap, "mmap", WatchedMap))
            try:
                yield self
            finally:
                self._may_continue.set()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let no call return within the block, and expect none on the event loop's thread."""
        self.on_loop.clear()
        self._may_continue.clear()
        try:
            yield
        finally:
            self._may_continue.set()
        assert not self._gave_up, f"a call was delayed for {_LONGEST_WAIT_SECONDS:g} s"
        assert not self.on_loop, "disk calls on the event loop:\n" + "\n".join(self.on_loop)

    # --- inside ---

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            self._called(name, arguments[0] if arguments else ".")
            return call(*arguments, **options)

        return watched

    def _called(self, name: str, file: Any) -> None:
        if self._may_continue.is_set():
            return
        path = _path_of(file) if isinstance(file, int) else os.fspath(file)
        if not str(path).startswith(self._root):
            return
        if threading.get_ident() == self._loop_thread:
            stack = "".join(traceback.format_stack(limit=8))
            self.on_loop.append(f"{name} {path}\n{stack}")
            return
        with self._counting:
            self.waiting += 1
        if not self._may_continue.wait(_LONGEST_WAIT_SECONDS):
            self._gave_up = True
        with self._counting:
            self.waiting -= 1


_readlink: Final = os.readlink


def _path_of(descriptor: int) -> str:
    try:
        return _readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""
