"""State in JSON files of a daemon: read at start, written after changes.

A file is replaced as a whole, and its previous content is kept as `.bak`. After a crash at any moment one of
the two files can be read. (Apache RocketMQ 5.3.3, ConfigManager, has the same two files, but overwrites them
in place.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from ..errors import BodyError
from .atomic_file import replace_file

log = logging.getLogger("rmq.persistence")

# Shortest time between two writes of a file that keeps changing.
_SPACING_SECONDS: Final = 0.2
_RETRY_SECONDS: Final = 5.0


class ConfigFileError(Exception):
    """Neither a file nor its backup can be read: a start would lose their content."""


class _Missing(ConfigFileError):
    """A file does not exist."""


class Persistent(Protocol):
    """State that is kept in a file. Both methods belong to the loop's thread."""

    def encode(self) -> bytes:
        """Return the whole state as the content of the file."""

    def decode(self, content: bytes) -> None:
        """Load the state from such content; raises BodyError, with nothing changed, if it is damaged."""


class ConfigFile:
    """Writes one file after changes of its state.

    The state is encoded on the loop and written in a thread; changes during a write are
    written together after it. A failed write is logged, counted and retried. `prepare` encodes parts of a
    large state ahead, a slice in each step, so that encoding the whole does not block the loop.
    """

    def __init__(
        self,
        path: Path,
        state: Persistent,
        *,
        spacing_seconds: float = _SPACING_SECONDS,
        retry_seconds: float = _RETRY_SECONDS,
        is_private: bool = False,
        prepare: Callable[[], Iterable[None]] = tuple,
    ) -> None:
        """Only the process's own user may read a file that `is_private`."""
        self.path = path
        self._is_private = is_private
        self.writes = 0
        self.failed_writes = 0
        self._state = state
        self._prepare = prepare
        self._spacing_seconds = spacing_seconds
        self._retry_seconds = retry_seconds
        # Changes are numbered: everything up to `_on_disk` is written.
        self._changed = 0
        self._on_disk = 0
        self._keep_backup = True
        self._writer: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def load(self) -> bool:
        """Read the file, or its backup if the file is damaged; return False if there is neither.

        For the start only: it blocks on the disk. Raises ConfigFileError if neither can be read.
        """
        backup = self.path.with_name(self.path.name + ".bak")
        problem = self._load_from(self.path)
        if problem is None:
            return True
        backup_problem = self._load_from(backup)
        if backup_problem is None:
            log.warning("state read from backup backup=%s cause=%s", backup.name, problem)
            # The damaged file must not become the backup.
            self._keep_backup = False
            return True
        if isinstance(problem, _Missing) and isinstance(backup_problem, _Missing):
            return False
        raise ConfigFileError(
            f"{problem}, and {backup_problem}. Restore one of the two files, or move them away to start "
            f"without what they held"
        )

    def changed(self) -> None:
        """Write the state soon: it has changed."""
        self._changed += 1
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(
                self._write_changes(), name=f"write {self.path.name}"
            )

    @property
    def is_saved(self) -> bool:
        """Whether every change so far is on disk."""
        return self._on_disk >= self._changed

    async def save(self) -> None:
        """Wait until every change so far is on disk. Raises OSError if the write fails."""
        if self.is_saved:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._changed, future))
        self._hurry.set()
        await future

    async def close(self) -> None:
        """Write the changes that are not on disk yet, and stop. Raises OSError if the write fails."""
        try:
            await self.save()
        finally:
            if self._writer is not None:
                self._writer.cancel()
                await asyncio.gather(self._writer, return_exceptions=True)

    def _load_from(self, path: Path) -> ConfigFileError | None:
        """Load the state from a file; return the error of a file that cannot be used."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return _Missing(f"{path} is missing")
        except OSError as error:
            return ConfigFileError(f"{path} cannot be read: {error.strerror or error}")
        if not content.strip():
            return ConfigFileError(f"{path} is empty")
        try:
            self._state.decode(content)
        except BodyError as error:
            return ConfigFileError(f"{path} is damaged: {error}")
        return None

    async def _write_changes(self) -> None:
        try:
            while self._on_disk < self._changed:
                self._hurry.clear()
                await self._pause(self._spacing_seconds if await self._write() else self._retry_seconds)
        finally:
            self._writer = None

    async def _write(self) -> bool:
        number = self._changed
        try:
            for _ in self._prepare():
                await asyncio.sleep(0)
            content = self._state.encode()
            replace = partial(
                replace_file,
                self.path,
                content,
                keep_backup=self._keep_backup,
                is_private=self._is_private,
            )
            await asyncio.get_running_loop().run_in_executor(None, replace)
        except Exception as error:
            self.failed_writes += 1
            log.error(
                "file not written, retrying path=%s cause=%s",
                self.path,
                error,
                exc_info=not isinstance(error, OSError),
            )
            self._answer(self._changed, error)
            return False
        self.writes += 1
        self._keep_backup = True
        self._on_disk = number
        self._answer(number, None)
        return True

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            pass

    def _answer(self, number: int, error: Exception | None) -> None:
        """Wake the callers of `save` that wait for changes up to `number`."""
        waiting, self._waiting = self._waiting, []
        for wanted, future in waiting:
            if wanted > number:
                self._waiting.append((wanted, future))
            elif not future.done():
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)
