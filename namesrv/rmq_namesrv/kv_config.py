"""Key-value configuration of order topics and operators, stored in Apache's kvConfig.json."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rmq_remoting.bodies.kv import KVConfigSerializeWrapper
from rmq_remoting.daemon.atomic_file import read_file_or_backup, replace_file
from rmq_remoting.errors import BodyError

log = logging.getLogger("rmq.namesrv.kv")

# The namespace with the numbers of queues of order topics by broker: `broker-a:8;broker-b:8`.
ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


class KvConfigError(Exception):
    """The file cannot be read; the message has a remedy."""


class KvConfig:
    """Tables of text. All methods but `load` belong to the loop's thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tables: dict[str, dict[str, str]] = {}
        self._changes = 0
        self._saved_changes = 0
        self._saving = asyncio.Lock()

    def load(self) -> None:
        """Read the file, if there is one. Blocks on the disk. Raises KvConfigError."""
        try:
            content = read_file_or_backup(self._path)
            if content is not None:
                self._tables = KVConfigSerializeWrapper.decode(content).config_table
        except (OSError, BodyError) as error:
            raise KvConfigError(
                f"the key-value configuration in {self._path} cannot be read: {error}; repair or remove the "
                "file (the content before the last change is beside it, in a file ending in .bak)"
            ) from error

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value; None if there is none."""
        return self._tables.get(namespace, {}).get(key)

    def table(self, namespace: str) -> Mapping[str, str] | None:
        """Return all keys of a namespace with their values; None for an unknown namespace."""
        return self._tables.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value; it is durable on return. Raises OSError: then it is in force but not persisted."""
        self._tables.setdefault(namespace, {})[key] = value
        log.info("key-value set namespace=%s key=%s value=%s", namespace, key, value)
        await self._save()

    async def delete(self, namespace: str, key: str) -> None:
        """Remove a value, if there is one; durable as with `put`. The namespace is kept, as in Apache's."""
        table = self._tables.get(namespace)
        if table is not None and table.pop(key, None) is not None:
            log.info("key-value deleted namespace=%s key=%s", namespace, key)
            await self._save()

    async def _save(self) -> None:
        """Write the file, together with all changes made during another write."""
        self._changes += 1
        change = self._changes
        async with self._saving:
            if self._saved_changes >= change:
                return
            written = self._changes
            content = KVConfigSerializeWrapper(config_table=self._tables).encode()
            await asyncio.to_thread(replace_file, self._path, content, keep_backup=True)
            self._saved_changes = written
