"""Queues and offsets by queue: what a checkpoint holds, and what some options are given as.

Their text is JSON, {topic: {broker: {queue: offset}}}, with the queue's number as a text, as names of JSON
objects are. Reading is strict to the leaf; writing sorts by topic, broker and number, so that equal offsets
are equal texts: Spark compares them as texts.
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

# As in Apache Spark's Kafka source (JsonUtils): stand-ins in options, never in a checkpoint.
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
        """As in messages for people: topic/broker/number."""
        return f"{self.topic}/{self.broker}/{self.queue_id}"


class QueueOffsets(Mapping[QueueKey, int]):
    """An offset for each of some queues; unchangeable, iterated in the order of the queues."""

    __slots__ = ("_offsets",)

    def __init__(self, offsets: Mapping[QueueKey, int] | Iterable[tuple[QueueKey, int]] = ()) -> None:
        self._offsets = dict(sorted(dict(offsets).items()))

    @classmethod
    def from_nested(cls, nested: object, *, least: int = 0) -> QueueOffsets:
        """Offsets out of parsed JSON. `least`: EARLIEST where stand-ins are allowed. Raises BadOffsets."""
        return cls(by_queue(nested, lambda leaf: read_offset(leaf, least)))

    @classmethod
    def from_json(cls, text: str, *, least: int = 0) -> QueueOffsets:
        """Offsets out of their JSON text; as `from_nested`."""
        return cls.from_nested(parse_json(text), least=least)

    def to_nested(self) -> dict[str, dict[str, dict[str, int]]]:
        """What JSON makes its text of, in order: Spark asks a source for offsets in this form."""
        return {
            topic: {
                broker: {str(key.queue_id): offset for key, offset in queues}
                for broker, queues in groupby(brokers, key=lambda item: item[0].broker)
            }
            for topic, brokers in groupby(self._offsets.items(), key=lambda item: item[0].topic)
        }

    def to_json(self) -> str:
        """Their text: equal offsets give equal texts."""
        return json.dumps(self.to_nested(), separators=(",", ":"))

    def merged(self, other: Mapping[QueueKey, int]) -> QueueOffsets:
        """The queues of both; where both have one, the other's offset."""
        return QueueOffsets({**self._offsets, **other})

    def only(self, wanted: Callable[[QueueKey], bool]) -> QueueOffsets:
        """Those of the wanted queues."""
        return QueueOffsets({key: offset for key, offset in self._offsets.items() if wanted(key)})

    def ahead_of(self, other: Mapping[QueueKey, int]) -> tuple[QueueKey, ...]:
        """The queues of both whose offset is higher here. For a checkpoint and the brokers' newest offsets:
        queues that have been set back (made anew, or restored from an older disk)."""
        return tuple(key for key, offset in self._offsets.items() if offset > other.get(key, MAX_OFFSET))

    def backlog(self, latest: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        """Offsets from here to the latest, for the queues of both where there are any."""
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
    """Parsed JSON {topic: {broker: {queue: leaf}}} by queue.

    `leaf` makes the value out of the JSON and raises ValueError. Raises BadOffsets, which says where.
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
    """Parsed JSON {topic: {broker: any}} as topic, broker and the rest. Raises BadOffsets."""
    for topic, brokers in _members(nested, "the top", "topic"):
        for broker, rest in _members(brokers, topic, "broker"):
            yield topic, broker, rest


def read_offset(leaf: object, least: int = 0) -> int:
    """An offset out of parsed JSON. Raises ValueError."""
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
    """JSON as RFC 8259 has it, without what Python adds; a name twice is an error. Raises BadOffsets."""
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
    # One way to write each: '01' beside '1' would be the same queue twice.
    if not _QUEUE_ID.fullmatch(text) or int(text) > MAX_QUEUE_ID:
        raise BadOffsets(f"at {shortened(where)}: {shortened(repr(text))} is not a queue's number")
    return int(text)


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        names = [name for name, _ in members]
        raise BadOffsets(f"twice in one object: {listed(sorted({n for n in names if names.count(n) > 1}))}")
    return found


def _no_constant(name: str) -> None:
    raise BadOffsets(f"not JSON: {name}")
