"""The table of committed consumer offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies import fastjson
from rmq_remoting.bodies.topic import DataVersion

from ..clock import ClockMs
from .saved import SavedOffsets

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

log = logging.getLogger("rmq.broker.offsets")

NO_OFFSET: Final = -1

_SEPARATOR: Final = "@"
# consumerOffsetUpdateVersionStep of Apache.
_COMMITS_PER_VERSION: Final = 500
# At most one warning about backward commits per interval: a faulty member may cause one with every pull.
_WARNING_SPACING_MS: Final = 1000

OffsetsByQueue = dict[int, int]


def broadcast_group(group: str) -> str:
    """Return the reserved group name that holds the lowest offsets of a broadcasting group's members."""
    return f"{group}{_SEPARATOR}broadcast"


def key_of(group: str, topic: str) -> str:
    """Return the key of a group's offsets in a topic."""
    return f"{topic}{_SEPARATOR}{group}"


class ConsumerOffsetTable:
    """Next offset by topic, group and queue, with its persistent form (`consumerOffset.json`).

    Every pull commits. Therefore a commit only updates two dictionaries and a set, and calls no listener; the
    flusher compares `revision`, which grows with every change. The encoded form is cached by group, so the
    cost of a snapshot depends on the changes since the last one, not on the number of groups.
    """

    def __init__(self, now_ms: ClockMs, *, is_replica: bool = False) -> None:
        """`is_replica`: note the commits of consumers apart, because the master has to get them."""
        self.data_version = DataVersion(timestamp=now_ms())
        self.revision = 0
        # Commits of a lower offset than before: after a reset, or from overlapping members.
        self.backward_commits = 0
        # On a replica: commits that its master may not have, a part of the table. None on a master.
        self._own: dict[str, OffsetsByQueue] | None = {} if is_replica else None
        self._now_ms = now_ms
        self._table: dict[str, OffsetsByQueue] = {}
        self._reset: dict[str, OffsetsByQueue] = {}
        self._reset_listeners: list[Callable[[str, str, int, int], None]] = []
        self._removal_listeners: list[Callable[[str], None]] = []
        # Pull progress. Not persisted: a restarted member pulls from its committed offset.
        self._pulled: dict[str, OffsetsByQueue] = {}
        self._next_warning_ms = 0
        self._not_told = 0
        # Keys whose cached encoding is outdated.
        self._changed: set[str] = set()
        self._encoded: dict[str, bytes] = {}

    # --- commits and queries ---

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, connection: Connection | None = None
    ) -> None:
        """Set the group's next offset in the queue; `connection` is the sender of the commit."""
        self.commit_of(key_of(group, topic), queue_id, offset, connection)

    def commit_of(self, key: str, queue_id: int, offset: int, connection: Connection | None = None) -> None:
        """Like `commit`, with `key_of` group and topic."""
        offsets = self._table.get(key)
        if offsets is None:
            offsets = self._table[key] = {}
        if offset < (before := offsets.get(queue_id, NO_OFFSET)):
            self._note_going_back(key, queue_id, before, offset, connection)
        if self._own is not None and connection is not None:
            self._own.setdefault(key, {})[queue_id] = offset
        self._set(key, offsets, queue_id, offset)

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset that may be lower than before, without a warning."""
        key = key_of(group, topic)
        self._set(key, self._table.setdefault(key, {}), queue_id, offset)

    def _set(self, key: str, offsets: OffsetsByQueue, queue_id: int, offset: int) -> None:
        offsets[queue_id] = offset
        self._changed.add(key)
        self.revision += 1
        if self.revision % _COMMITS_PER_VERSION == 0:
            self.data_version = self.data_version.next(self._now_ms())

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the group's next offset in the queue, a pending reset first; NO_OFFSET if none."""
        key = key_of(group, topic)
        if self._reset:
            reset = self._reset.get(key)
            if reset is not None and queue_id in reset:
                return reset[queue_id]
        offsets = self._table.get(key)
        return NO_OFFSET if offsets is None else offsets.get(queue_id, NO_OFFSET)

    def offsets_of(self, group: str, topic: str) -> OffsetsByQueue:
        """Return a new map of the group's committed offsets in a topic, by queue id."""
        return dict(self._table.get(key_of(group, topic), {}))

    def note_pulled(self, key: str, queue_id: int, offset: int) -> None:
        """Record that a group has received a queue's messages up to `offset`; `key` is its `key_of`."""
        offsets = self._pulled.get(key)
        if offsets is None:
            offsets = self._pulled[key] = {}
        offsets[queue_id] = offset

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset up to which the group has received messages; NO_OFFSET before its first pull."""
        return self._pulled.get(key_of(group, topic), {}).get(queue_id, NO_OFFSET)

    def pulled_of(self, group: str, topic: str) -> OffsetsByQueue:
        """Return a new map of the pulled offsets in a topic, by queue id."""
        return dict(self._pulled.get(key_of(group, topic), {}))

    def topics_of(self, group: str) -> set[str]:
        """Return the topics in which the group has offsets."""
        return {topic for topic, name in self._names() if name == group}

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups with offsets in the topic."""
        return {group for name, group in self._names() if name == topic and _SEPARATOR not in group}

    def entries(self) -> list[tuple[str, str, OffsetsByQueue]]:
        """Return group, topic and committed offsets of each entry; the offsets are live."""
        found: list[tuple[str, str, OffsetsByQueue]] = []
        for key, offsets in list(self._table.items()):
            topic, group = _split(key)
            found.append((group, topic, offsets))
        return found

    def __len__(self) -> int:
        return len(self._table)

    # --- resets ---

    def assign_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Reset the group to `offset`: commits are refused until its next pull has received the reset.

        A pending reset survives a restart. Otherwise members that continue at old offsets would undo it.
        """
        key = key_of(group, topic)
        self._reset.setdefault(key, {})[queue_id] = offset
        self._pulled.get(key, {}).pop(queue_id, None)
        self.put(group, topic, queue_id, offset)
        for listener in self._reset_listeners:
            listener(group, topic, queue_id, offset)

    def on_reset(self, listener: Callable[[str, str, int, int], None]) -> None:
        """Register `listener`, called with group, topic, queue id and offset of each reset."""
        self._reset_listeners.append(listener)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset of the group is pending."""
        return bool(self._reset) and queue_id in self._reset.get(key_of(group, topic), {})

    def take_reset(self, group: str, topic: str, queue_id: int) -> int:
        """Remove and return the offset of a pending reset; NO_OFFSET without one."""
        if not self._reset:
            return NO_OFFSET
        key = key_of(group, topic)
        offsets = self._reset.get(key)
        if offsets is None or queue_id not in offsets:
            return NO_OFFSET
        offset = offsets.pop(queue_id)
        if not offsets:
            del self._reset[key]
        self.revision += 1
        return offset

    # --- a replica's offsets ---

    @property
    def own_commits(self) -> dict[str, OffsetsByQueue]:
        """Commits of consumers at this replica that its master may not have; empty on a master."""
        return self._own or {}

    def groups_with_own_commits(self) -> set[str]:
        """Return the groups that have committed at this replica what its master may not have."""
        return {split_key(key)[1] for key in self.own_commits}

    def drop_own_commit(self, key: str, queue_id: int) -> None:
        """Forget that an offset was committed at this replica: the master has it, or a later one."""
        if self._own is not None and self._own.get(key, {}).pop(queue_id, None) is not None:
            self.revision += 1
            if not self._own[key]:
                del self._own[key]

    def follow_entry(self, key: str, offsets: OffsetsByQueue) -> None:
        """Replace the offsets of a group in a topic by those of the master; none removes the entry."""
        if self._table.get(key, {}) == offsets:
            return
        self.revision += 1
        if offsets:
            self._table[key] = offsets
            self._changed.add(key)
        else:
            del self._table[key]
            self._changed.discard(key)
            self._encoded.pop(key, None)

    def follow_resets(self, marks: dict[str, OffsetsByQueue]) -> None:
        """Replace the pending resets by those of the master."""
        if marks != self._reset:
            self._reset = marks
            self.revision += 1

    def entry_keys(self) -> list[str]:
        """Return the keys of all entries."""
        return list(self._table)

    # --- removal and copies ---

    def remove_topic(self, topic: str) -> int:
        """Remove a topic's offsets; return the number of groups."""
        return self._remove(topic, ())

    def remove_group(self, group: str) -> int:
        """Remove a group's offsets; return the number of topics."""
        removed = self._remove(None, (group, broadcast_group(group)))
        for listener in self._removal_listeners:
            listener(group)
        return removed

    def on_group_removed(self, listener: Callable[[str], None]) -> None:
        """Register `listener`, called with each group whose offsets are removed."""
        self._removal_listeners.append(listener)

    def copy_group(self, source: str, target: str, topic: str) -> None:
        """Copy the offsets of one group to another."""
        offsets = self._table.get(f"{topic}{_SEPARATOR}{source}")
        if offsets is not None:
            key = f"{topic}{_SEPARATOR}{target}"
            self._table[key] = dict(offsets)
            self._changed.add(key)
            self.revision += 1

    # --- persistence ---

    def changed_keys(self) -> list[str]:
        """Return the keys of the entries that have changed since they were encoded."""
        return list(self._changed)

    def encode_entry(self, key: str) -> int:
        """Encode an entry ahead of `encode`, if it exists and has changed; return how many offsets it has."""
        if key not in self._changed:
            return 0
        offsets = self._table[key]
        self._encoded[key] = _entry(key, offsets)
        self._changed.discard(key)
        return len(offsets)

    def encode(self) -> bytes:
        """Return the content of `consumerOffset.json`, also sent to slaves."""
        encoded = self._encoded
        for key in list(self._changed):
            self.encode_entry(key)
        return b'{"dataVersion":%b,"offsetTable":{%b}%b%b}' % (
            self.data_version.encode(),
            b",".join(encoded.values()),
            _member(b"ownCommits", self.own_commits),
            _member(b"resetMarks", self._reset),
        )

    def decode(self, content: bytes) -> None:
        """Load the content of `consumerOffset.json`; raises BodyError."""
        saved = SavedOffsets.decode(content)
        self._table = saved.offset_table
        self._reset = saved.reset_marks
        if self._own is not None:
            self._own = saved.own_commits
        self.data_version = saved.data_version or self.data_version
        self._encoded.clear()
        self._changed = set(self._table)

    # --- internals ---

    def _names(self) -> Iterator[tuple[str, str]]:
        """Return topic and group of every entry."""
        return map(_split, list(self._table))

    def _remove(self, topic: str | None, groups: tuple[str, ...]) -> int:
        """Remove the offsets of a topic, and those of some groups; return how many entries."""
        keys = [key for key in self._table if _is_of(key, topic, groups)]
        for key in keys:
            log.info("offsets removed key=%s queues=%d", key, len(self._table.pop(key)))
            self._changed.discard(key)
            self._encoded.pop(key, None)
            self.revision += 1
        for further in (self._reset, self._pulled, self.own_commits):
            for key in [key for key in further if _is_of(key, topic, groups)]:
                del further[key]
        return len(keys)

    def _note_going_back(
        self, key: str, queue_id: int, before: int, offset: int, connection: Connection | None
    ) -> None:
        """Count and log a backward commit, which redelivers messages: a reset, or overlapping members."""
        self.backward_commits += 1
        now_ms = self._now_ms()
        if 0 < self._next_warning_ms - now_ms <= _WARNING_SPACING_MS:  # not after a step back of the clock
            self._not_told += 1
            return
        self._next_warning_ms = now_ms + _WARNING_SPACING_MS
        not_told, self._not_told = self._not_told, 0
        log.warning(
            "offset committed backwards, messages will be redelivered peer=%s key=%s queue=%d offset=%d "
            "before=%d unlogged=%d",
            "unknown" if connection is None else connection.peer,
            key,
            queue_id,
            offset,
            before,
            not_told,
        )


def _entry(key: str, offsets: OffsetsByQueue) -> bytes:
    listed = ",".join([f"{queue_id}:{offset}" for queue_id, offset in offsets.items()])
    return b"%b:{%b}" % (fastjson.dumps(key), listed.encode())


def _member(name: bytes, table: Mapping[str, OffsetsByQueue]) -> bytes:
    """Return a further member of the file, with the comma before it; empty without entries."""
    entries = b",".join([_entry(key, offsets) for key, offsets in table.items()])
    return b',"%b":{%b}' % (name, entries) if entries else b""


def _is_of(key: str, topic: str | None, groups: tuple[str, ...]) -> bool:
    of_topic, of_group = _split(key)
    return of_topic == topic or of_group in groups


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(_SEPARATOR)
    return topic, group


def split_key(key: str) -> tuple[str, str]:
    """Return the topic and the group of `key_of`; a broadcasting group without its mark."""
    topic, group = _split(key)
    return topic, group.partition(_SEPARATOR)[0]
