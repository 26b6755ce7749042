"""The topics and groups that the shards of one host have in common, with their file `shards.json`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pydantic import Field

from rmq_remoting.bodies.base import Body
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.daemon.config_file import ConfigFile

from .kinds import ConfigT, Kind
from .shared_table import SharedTable

log = logging.getLogger("rmq.shards")

# Shortest time between two writes: the whole file is written each time.
_SPACING_SECONDS: Final = 1.0


class _Behind(Body):
    """Names of the entries that one shard has yet to get."""

    topics: list[str] = Field(default_factory=list)
    groups: list[str] = Field(default_factory=list)


class _State(Body):
    """The content of `shards.json`."""

    topics: dict[str, TopicConfig] = Field(default_factory=dict)
    groups: dict[str, SubscriptionGroupConfig] = Field(default_factory=dict)
    behind: list[_Behind] = Field(default_factory=list)


class CommonTables:
    """Both tables. Everything except `load` belongs to the loop.

    The file has the deletions that a stopped shard has yet to follow. All else could be read from the shards,
    but the file also tells which of two different entries is the older one.
    """

    def __init__(self, path: Path, shard_names: Sequence[str]) -> None:
        self.topics: SharedTable[TopicConfig] = SharedTable(len(shard_names))
        self.groups: SharedTable[SubscriptionGroupConfig] = SharedTable(len(shard_names))
        self._shard_names = shard_names
        self._file = ConfigFile(path, self, spacing_seconds=_SPACING_SECONDS)
        self._listeners: list[Callable[[], None]] = []

    def load(self) -> None:
        """Read the file. Raises ConfigFileError; blocks."""
        self._file.load()

    async def save(self) -> None:
        """Wait until all changes so far are on disk. Raises OSError."""
        await self._file.save()

    async def close(self) -> None:
        """Write the changes that are not on disk yet, and stop. Raises OSError."""
        await self._file.close()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` when shards may have yet to get entries."""
        self._listeners.append(listener)

    def behind_count(self, shard: int) -> int:
        """Return the number of topics and groups that a shard has yet to get."""
        return self.topics.behind_count(shard) + self.groups.behind_count(shard)

    # --- reports and requests ---

    def begin(self, shard: int) -> None:
        """Begin the reports of a shard that has started."""
        self.topics.begin(shard)
        self.groups.begin(shard)

    def report(
        self, kind: Kind[ConfigT], table: SharedTable[ConfigT], shard: int, name: str, entry: ConfigT | None
    ) -> None:
        """Take a shard's entry, or its deletion, over for all shards."""
        if not table.report(shard, name, entry):
            return
        if not table.is_reporting(shard):  # otherwise there may be thousands
            self._log_change(kind, shard, name, is_deletion=entry is None)
        self._changed()

    def exclude_topic(self, name: str) -> None:
        """Share a topic no longer: the shards have different parts of it."""
        self.topics.exclude(name)
        self._file.changed()

    def end(self, kind: Kind[ConfigT], table: SharedTable[ConfigT], shard: int) -> None:
        """End a shard's reports of all its entries in one table."""
        table.end(shard)
        log.info(
            "%ss of a shard read shard=%s common=%d pending=%d",
            kind.name,
            self._shard_names[shard],
            len(table.entries),
            table.behind_count(shard),
        )
        self._changed()

    def applied(
        self, kind: Kind[ConfigT], table: SharedTable[ConfigT], shard: int, name: str, sent: ConfigT | None
    ) -> None:
        """Note that a shard has taken an entry over."""
        if table.applied(shard, name, sent):
            self._log_change(kind, shard, name, is_deletion=name not in table.entries)
            self._changed()
        else:
            self._file.changed()

    # --- persistence ---

    def encode(self) -> bytes:
        """Return the content of the file."""
        behind = zip(self.topics.behind_names(), self.groups.behind_names(), strict=True)
        return _State(
            topics=self.topics.entries,
            groups=self.groups.entries,
            behind=[_Behind(topics=topics, groups=groups) for topics, groups in behind],
        ).encode()

    def decode(self, content: bytes) -> None:
        """Load the content of the file. Raises BodyError."""
        state = _State.decode(content)
        self.topics.restore(state.topics, [behind.topics for behind in state.behind])
        self.groups.restore(state.groups, [behind.groups for behind in state.behind])

    # --- internals ---

    def _log_change(self, kind: Kind[ConfigT], shard: int, name: str, *, is_deletion: bool) -> None:
        log.info(
            "%s %s on one shard, passing it on %s=%s shard=%s",
            kind.name,
            "deleted" if is_deletion else "created or changed",
            kind.name,
            name,
            self._shard_names[shard],
        )

    def _changed(self) -> None:
        self._file.changed()
        for listener in self._listeners:
            listener()
