"""Filters of a query that are pushed down, to read fewer messages. Spark applies all of them again.

Push-down need not be exact, but it must not drop a message that a filter accepts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from ..offsets import QueueKey, QueueOffsets
from .cluster import Cluster

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ONE_MS: Final = timedelta(milliseconds=1)
# Other texts could be parsed as several tags, or as all tags.
_PLAIN_TAG: Final = re.compile(r"[^\s|*]+")
_MOST_TAGS: Final = 100

_BY_VALUE: Final = frozenset({"topic", "brokerName", "queueId", "tags"})


@dataclass(slots=True)
class Bounds:
    """Whole numbers from `minimum` up to, but not including, `limit`; None for no bound."""

    minimum: int | None = None
    limit: int | None = None

    def at_least(self, number: int) -> None:
        """Require numbers of at least this one."""
        self.minimum = number if self.minimum is None else max(self.minimum, number)

    def before(self, number: int) -> None:
        """Require numbers below this one."""
        self.limit = number if self.limit is None else min(self.limit, number)


@dataclass(slots=True)
class PushedFilters:
    """The messages that filters accept: values by column, offsets, and store times in ms since 1970."""

    values: dict[str, frozenset[object]] = field(default_factory=dict)
    offsets: Bounds = field(default_factory=Bounds)
    times_ms: Bounds = field(default_factory=Bounds)

    @classmethod
    def from_spark(cls, filters: Iterable[Filter]) -> PushedFilters:
        """Combine filters; those on other columns or of other kinds are ignored."""
        pushed = cls()
        for each in filters:
            if isinstance(each, (EqualTo, EqualNullSafe)):
                pushed._restrict_values(each.attribute, (each.value,))
            elif isinstance(each, In):
                pushed._restrict_values(each.attribute, tuple(each.value))
            if isinstance(each, (EqualTo, EqualNullSafe, GreaterThanOrEqual, GreaterThan)):
                pushed._bound_below(each.attribute, each.value, above=isinstance(each, GreaterThan))
            if isinstance(each, (EqualTo, EqualNullSafe, LessThanOrEqual, LessThan)):
                pushed._bound_above(each.attribute, each.value, below=isinstance(each, LessThan))
        return pushed

    @property
    def tags(self) -> str | None:
        """A tag expression for brokers; None if the brokers have to send all messages."""
        tags = sorted(str(tag) for tag in self.values.get("tags", ()) if isinstance(tag, str))
        if not tags or len(tags) != len(self.values["tags"]) or len(tags) > _MOST_TAGS:
            return None
        return " || ".join(tags) if all(_PLAIN_TAG.fullmatch(tag) for tag in tags) else None

    def matches(self, queue: QueueKey) -> bool:
        """Return whether messages of this queue can be accepted."""
        columns = (("topic", queue.topic), ("brokerName", queue.broker), ("queueId", queue.queue_id))
        return all(name not in self.values or value in self.values[name] for name, value in columns)

    def apply(
        self, cluster: Cluster, start: QueueOffsets, end: QueueOffsets
    ) -> tuple[QueueOffsets, QueueOffsets]:
        """Reduce the ranges between two offsets. Raises SourceUnavailable, ClientError."""
        start, end = start.only(self.matches), end.only(self.matches)
        times_ms, minimum, limit = self.times_ms, self.offsets.minimum or 0, self.offsets.limit
        begin: dict[QueueKey, int] = {queue: max(offset, minimum) for queue, offset in start.items()}
        if times_ms.minimum is not None:
            found = cluster.at_times(dict.fromkeys(begin, times_ms.minimum))
            begin = {queue: max(offset, found[queue]) for queue, offset in begin.items()}
        stop = {queue: offset if limit is None else min(offset, limit) for queue, offset in end.items()}
        if times_ms.limit is not None:
            found = cluster.at_times(dict.fromkeys(stop, times_ms.limit))
            stop = {queue: min(offset, found[queue]) for queue, offset in stop.items()}
        return QueueOffsets(begin), QueueOffsets({q: max(offset, begin[q]) for q, offset in stop.items()})

    def _restrict_values(self, attribute: tuple[str, ...], values: tuple[object, ...]) -> None:
        name = attribute[0]
        if len(attribute) == 1 and name in _BY_VALUE:
            admitted = frozenset(values)
            self.values[name] = admitted & self.values.get(name, admitted)

    def _bound_below(self, attribute: tuple[str, ...], value: Any, *, above: bool) -> None:
        if attribute == ("queueOffset",) and type(value) is int:
            self.offsets.at_least(value + above)
        elif attribute == ("storeTimestamp",) and (time_ms := _whole_ms(value)) is not None:
            self.times_ms.at_least(max(0, time_ms))

    def _bound_above(self, attribute: tuple[str, ...], value: Any, *, below: bool) -> None:
        if attribute == ("queueOffset",) and type(value) is int:
            self.offsets.before(max(0, value + (not below)))
        elif attribute == ("storeTimestamp",) and (time_ms := _whole_ms(value)) is not None:
            # A message of the same millisecond may match: Spark's times have microseconds.
            self.times_ms.before(max(0, time_ms + 1))


def _whole_ms(value: object) -> int | None:
    """Return the millisecond that contains a time; None for a time without a zone."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _ONE_MS
