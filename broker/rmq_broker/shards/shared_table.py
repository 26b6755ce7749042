"""A table that all shards have in common: which shard has yet to get which entry. Pure, without I/O.

Each shard reports its entries at its start, and then each change, in order. The table takes a change over and
marks the entry as behind for the other shards. An entry that is behind at a shard is set there by an ordinary
admin request. Two rules keep this from running in circles, and from losing entries:

- A report that equals the table's entry changes nothing, so the effect of a request ends there.
- A missing entry is no deletion: a shard whose disk was replaced, or that lost the end of its files in a
  power cut, gets the entry again. Only a report of the deletion itself deletes.

While an entry is behind at a shard, the table's value wins over that shard's. A report that arrives during
the request tells of a change before or after the request. Reports and answers arrive in the order of the
shard's changes, so the last report counts: if it differs from the request, it tells of a change after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

EntryT = TypeVar("EntryT")


@dataclass(frozen=True, slots=True)
class Difference(Generic[EntryT]):
    """An entry that a shard has yet to get.

    `wanted` is None if it is to be deleted; `known` is what the shard has, None if it has no such entry.
    """

    name: str
    wanted: EntryT | None
    known: EntryT | None


@dataclass(slots=True)
class _Behind(Generic[EntryT]):
    known: EntryT | None
    was_reported: bool = False  # `known` is a report of the shard, not an assumption


@dataclass(slots=True)
class _Shard(Generic[EntryT]):
    behind: dict[str, _Behind[EntryT]] = field(default_factory=dict)
    # Names reported since the shard's start; None once all are.
    reported: set[str] | None = None


class SharedTable(Generic[EntryT]):
    """The common entries by name, and the entries that each shard has yet to get."""

    def __init__(self, shards: int) -> None:
        self.entries: dict[str, EntryT] = {}
        self._shards: list[_Shard[EntryT]] = [_Shard() for _ in range(shards)]
        self._excluded: set[str] = set()

    # --- reports of shards ---

    def begin(self, shard: int) -> None:
        """Begin the reports of a shard that has started."""
        self._shards[shard].reported = set()

    def is_reporting(self, shard: int) -> bool:
        """Whether a shard that has started still reports its entries."""
        return self._shards[shard].reported is not None

    def report(self, shard: int, name: str, entry: EntryT | None) -> bool:
        """Take a shard's entry, or with None its deletion; return whether the table has changed."""
        state = self._shards[shard]
        if state.reported is not None:
            state.reported.add(name)
        if name in self._excluded:
            if entry is None:
                self._excluded.discard(name)
            return False
        behind = state.behind.get(name)
        if behind is not None:
            behind.known, behind.was_reported = entry, True
            return False
        return self._set(shard, name, entry)

    def exclude(self, name: str) -> None:
        """Share an entry no longer, until a shard reports its deletion: each shard keeps what it has."""
        self._excluded.add(name)
        self.entries.pop(name, None)
        for state in self._shards:
            state.behind.pop(name, None)

    def end(self, shard: int) -> None:
        """End the reports of all entries: the shard lacks those that it did not report."""
        state = self._shards[shard]
        reported, state.reported = state.reported or set(), None
        for name in (*self.entries, *state.behind):
            if name not in reported:
                state.behind[name] = _Behind(None)
        for name, behind in list(state.behind.items()):
            if behind.known == self.entries.get(name):
                del state.behind[name]

    # --- requests to shards ---

    def differences(self, shard: int, limit: int, but: Iterable[str] = ()) -> list[Difference[EntryT]]:
        """Return up to `limit` entries that a shard has yet to get."""
        skipped = frozenset(but)
        found: list[Difference[EntryT]] = []
        for name, behind in self._shards[shard].behind.items():
            if len(found) == limit:
                break
            if name not in skipped:
                found.append(Difference(name, self.entries.get(name), behind.known))
        return found

    def applied(self, shard: int, name: str, sent: EntryT | None) -> bool:
        """Note that a shard has taken an entry over; return whether the table has changed.

        It has if the shard reported another value after it had taken over the one that was sent.
        """
        state = self._shards[shard]
        behind = state.behind.get(name)
        if behind is None:
            return False
        if not behind.was_reported:
            behind.known = sent
        wanted = self.entries.get(name)
        if behind.known == wanted:
            del state.behind[name]
        elif sent == wanted:
            del state.behind[name]
            return self._set(shard, name, behind.known)
        return False

    def behind_count(self, shard: int) -> int:
        """Return the number of entries that a shard has yet to get."""
        return len(self._shards[shard].behind)

    # --- persistence ---

    def behind_names(self) -> Iterator[list[str]]:
        """Yield the names of the entries that each shard has yet to get."""
        for state in self._shards:
            yield sorted(state.behind)

    def restore(self, entries: Mapping[str, EntryT], behind: Iterable[Iterable[str]]) -> None:
        """Take over what an earlier supervisor has written."""
        self.entries = dict(entries)
        for state, names in zip(self._shards, behind, strict=False):
            state.behind = {name: _Behind(None) for name in names}

    # --- internals ---

    def _set(self, origin: int, name: str, entry: EntryT | None) -> bool:
        before = self.entries.get(name)
        if before == entry:
            return False
        if entry is None:
            del self.entries[name]
        else:
            self.entries[name] = entry
        for number, state in enumerate(self._shards):
            if number != origin:
                state.behind.setdefault(name, _Behind(before))
        return True
