"""Queues, and an offset for each queue: the content of a checkpoint and of some options.

The text form is JSON, {topic: {broker: {queue: offset}}}. Queue numbers are strings, as JSON requires of
names. Parsing is strict. Serialization sorts by topic, broker and queue number: Spark compares offsets as
texts, so equal offsets must have equal texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeVar

from .errors import BadOffsets, listed, shortened

T = TypeVar("T")

# As in Apache Spark's Kafka source (JsonUtils): placeholders in options, never in a checkpoint.
EARLIEST: Final = -2
LATEST: Final = -1
_PLACEHOLDERS: Final = {EARLIEST: "earliest", LATEST: "latest"}

MAX_OFFSET: Final = 2**63 - 1
MAX_QUEUE_ID: Final = 2**31 - 1
_QUEUE_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")


@dataclass(frozen=True, slots=True, order=True)
class QueueKey:
    """One queue of the cluster."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        """Return topic/broker/queue, as in messages."""
        return f"{self.topic}/{self.broker}/{self.queue_id}"


class QueueOffsets(Mapping[QueueKey, int]):
    """An immutable map from queues to offsets, iterated in the order of the queues."""

    __slots__ = ("_offsets",)

    def __init__(self, offsets: Mapping[QueueKey, int] | Iterable[tuple[QueueKey, int]] = ()) -> None:
        self._offsets = dict(sorted(dict(offsets).items()))

    @classmethod
    def from_nested(cls, nested: object, *, least: int = 0) -> QueueOffsets:
        """Convert parsed JSON. `least`: EARLIEST if placeholders are allowed. Raises BadOffsets."""
        return cls(by_queue(nested, lambda leaf: read_offset(leaf, least)))

    @classmethod
    def from_json(cls, text: str, *, least: int = 0) -> QueueOffsets:
        """Parse JSON text; parameters and errors as for `from_nested`."""
        return cls.from_nested(parse_json(text), least=least)

    def to_nested(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return nested dictionaries in sorted order, the form in which Spark takes offsets from a source."""
        return {
            topic: {
                broker: {str(key.queue_id): offset for key, offset in queues}
                for broker, queues in groupby(brokers, key=lambda item: item[0].broker)
            }
            for topic, brokers in groupby(self._offsets.items(), key=lambda item: item[0].topic)
        }

    def to_json(self) -> str:
        """Return the JSON text. Equal offsets have equal texts."""
        return json.dumps(self.to_nested(), separators=(",", ":"))

    def merged(self, other: Mapping[QueueKey, int]) -> QueueOffsets:
        """Return the queues of both; `other` wins for queues that both have."""
        return QueueOffsets({**self._offsets, **other})

    def only(self, wanted: Callable[[QueueKey], bool]) -> QueueOffsets:
        """Return the queues for which `wanted` is true."""
        return QueueOffsets({key: offset for key, offset in self._offsets.items() if wanted(key)})

    def ahead_of(self, other: Mapping[QueueKey, int]) -> tuple[QueueKey, ...]:
        """Return the queues of both whose offset is higher here than in `other`.

        For a checkpoint compared with the newest offsets of the brokers, these are queues that were
        truncated: deleted and created again, or restored from an older disk.
        """
        return tuple(key for key, offset in self._offsets.items() if offset > other.get(key, MAX_OFFSET))

    def backlog(self, latest: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        """Return the number of offsets from here to `latest`, for queues of both that have a backlog."""
        return {
            key: latest[key] - offset
            for key, offset in self._offsets.items()
            if latest.get(key, offset) > offset
        }

    def __getitem__(self, key: QueueKey) -> int:
        return self._offsets[key]

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    def __hash__(self) -> int:
        return hash(tuple(self._offsets.items()))

    def __repr__(self) -> str:
        return f"QueueOffsets({self.to_json()})"


def by_queue(nested: object, leaf: Callable[[object], T]) -> dict[QueueKey, T]:
    """Convert parsed JSON {topic: {broker: {queue: leaf}}} to a value for each queue.

    `leaf` converts one value and raises ValueError. Raises BadOffsets with the position of the error.
    """
    found: dict[QueueKey, T] = {}
    for topic, broker, queues in by_broker(nested):
        for queue, value in _members(queues, f"{topic}/{broker}", "queue"):
            key = QueueKey(topic, broker, _queue_id(queue, f"{topic}/{broker}"))
            try:
                found[key] = leaf(value)
            except ValueError as error:
                raise BadOffsets(f"at {shortened(str(key))}: {error}") from error
    return found


def by_broker(nested: object) -> Iterator[tuple[str, str, object]]:
    """Yield topic, broker and the rest of parsed JSON {topic: {broker: any}}. Raises BadOffsets."""
    for topic, brokers in _members(nested, "the top", "topic"):
        for broker, rest in _members(brokers, topic, "broker"):
            yield topic, broker, rest


def read_offset(leaf: object, least: int = 0) -> int:
    """Convert one offset of parsed JSON. Raises ValueError."""
    if type(leaf) is not int or not least <= leaf <= MAX_OFFSET:
        placeholders = "".join(
            f"{number} ({name}), " for number, name in _PLACEHOLDERS.items() if number >= least
        )
        wanted = f"{placeholders.rstrip(', ')} or a whole number" if placeholders else "a whole number"
        raise ValueError(
            f"{shortened(repr(leaf))} is not an offset, which is {wanted} from 0 to {MAX_OFFSET}"
        )
    return leaf


def parse_json(text: str) -> object:
    """Parse strict JSON (RFC 8259). Duplicate names are an error. Raises BadOffsets."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except BadOffsets:
        raise
    except (ValueError, RecursionError) as error:
        raise BadOffsets(f"not JSON: {error}") from error


def _members(nested: object, where: str, kind: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(nested, dict):
        raise BadOffsets(f"at {shortened(where)}: {shortened(repr(nested))} is not an object by {kind}")
    for name, value in nested.items():
        if not isinstance(name, str) or not name:
            raise BadOffsets(f"at {shortened(where)}: {name!r} is not the name of a {kind}")
        yield name, value


def _queue_id(text: str, where: str) -> int:
    # Only one spelling per number is allowed: '01' beside '1' would be the same queue twice.
    if not _QUEUE_ID.fullmatch(text) or int(text) > MAX_QUEUE_ID:
        raise BadOffsets(f"at {shortened(where)}: {shortened(repr(text))} is not a queue number")
    return int(text)


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        names = [name for name, _ in members]
        duplicates = listed(sorted({name for name in names if names.count(name) > 1}))
        raise BadOffsets(f"duplicate names in one object: {duplicates}")
    return found


def _no_constant(name: str) -> None:
    raise BadOffsets(f"not JSON: {name}")
