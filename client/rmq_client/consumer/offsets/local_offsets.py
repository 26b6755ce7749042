"""Consumed offsets on the local disk, for broadcasting consumers, in Apache's file format."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from rmq_remoting.bodies.offsets import OffsetSerializeWrapper
from rmq_remoting.errors import BodyError
from rmq_remoting.message_queue import MessageQueue

from ...errors import ClientError, UsageError
from ...tasks import uninterrupted
from .offset_store import OffsetStore

log = logging.getLogger(__name__)

DEFAULT_FOLDER = Path("~/.rocketmq_offsets")


class LocalOffsetStore(OffsetStore):
    """`<folder>/<client>/<group>/offsets.json`, and its predecessor `offsets.json.bak`.

    The path and the content are those of Apache RocketMQ 5.3.3, LocalFileOffsetStore. Two processes with the
    same path overwrite each other: they need names of their own (`ClientSettings.instance_name`).
    """

    def __init__(self, folder: Path, client_name: str, group: str) -> None:
        super().__init__()
        self.path = folder.expanduser() / client_name / group / "offsets.json"
        self._writing = asyncio.Lock()
        self._stored: dict[MessageQueue, int] | None = None

    async def read(self, queue: MessageQueue, *, zero_for_young_queues: bool = False) -> int | None:
        """Return the offset in the file.

        Raises UsageError if neither the file nor its predecessor can be read.
        """
        return (await self._load()).get(queue)

    async def commit(
        self, queues: Iterable[MessageQueue] | None = None, *, failures: list[ClientError] | None = None
    ) -> bool:
        """Write the file; offsets of other queues in it stay."""
        changed = {queue: self._offsets[queue] for queue in self._chosen(queues)}
        # A cancelled caller must not release the lock before the thread has finished.
        return await uninterrupted(self._write(changed, failures))

    async def _write(self, changed: dict[MessageQueue, int], failures: list[ClientError] | None) -> bool:
        async with self._writing:
            try:
                stored = await self._load()
                if all(stored.get(queue) == offset for queue, offset in changed.items()):
                    return True
                merged = {**stored, **changed}
                body = OffsetSerializeWrapper(offset_table=merged).encode()
                await asyncio.to_thread(_replace, self.path, body)
            except (OSError, ClientError) as error:
                if failures is None:
                    log.warning(
                        "offsets not written path=%s cause=%s; retried at the next commit", self.path, error
                    )
                else:
                    failures.append(ClientError(f"the offsets were not written to {self.path}: {error}"))
                return False
            self._stored = merged
        self.commits += 1
        return True

    async def _load(self) -> dict[MessageQueue, int]:
        if self._stored is None:
            self._stored = await asyncio.to_thread(_read, self.path)
        return self._stored


def _read(path: Path) -> dict[MessageQueue, int]:
    """Return the offsets of the file or else of its predecessor; none if neither exists."""
    failure: Exception | None = None
    for candidate in (path, _backup(path)):
        try:
            content = candidate.read_bytes()
            if content.strip():
                offsets = OffsetSerializeWrapper.decode(content).offset_table
                if failure is not None:
                    log.warning(
                        "offsets file not readable path=%s cause=%s; %s is used",
                        path,
                        failure,
                        candidate.name,
                    )
                return offsets
        except FileNotFoundError:
            continue
        except (OSError, BodyError) as error:
            failure = failure or error
    if failure is not None:
        raise UsageError(
            f"the offsets in {path} cannot be read ({failure}), and {_backup(path).name} is missing or "
            "unreadable, too: repair the file, or remove it to begin without offsets"
        )
    return {}


def _replace(path: Path, body: bytes) -> None:
    """Write a new file and rename it; the old one stays as the backup, so that a crash leaves one of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        path.replace(_backup(path))
    temporary.replace(path)


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")
