"""Parses Spark's progress reports for the sources of this connector.

Reports identify Python sources by the address of a Java object. The connector recognizes its own sources by
the form of their offsets, {topic: {broker: {queue: offset}}}, which no other known source writes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from ..errors import BadOffsets
from ..offsets import QueueKey, QueueOffsets, parse_json
from ..stream_losses import QueueLoss, split_report
from ..stream_position import StreamPosition

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress


@dataclass(frozen=True, slots=True)
class Progress:
    """One batch. `at`: when its trigger began and `newest` was requested (seconds since 1970 UTC).

    If several sources read a queue, `ends` has the lowest of their offsets. `losses`: since the run began.
    """

    at: float
    batch_id: int
    batch_seconds: float
    rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    ends: Mapping[QueueKey, int]
    newest: Mapping[QueueKey, int]
    losses: Mapping[QueueKey, QueueLoss] = field(default_factory=dict)


def read_progress(report: StreamingQueryProgress) -> Progress | None:
    """Return the part of a report about this connector; None if no source belongs to it."""
    sources = [(source, end) for source in report.sources if (end := _position(source.endOffset))]
    if not sources:
        return None
    ends: dict[QueueKey, int] = {}
    newest: dict[QueueKey, int] = {}
    losses: dict[QueueKey, QueueLoss] = {}
    for source, end in sources:
        for queue, offset in end.items():
            ends[queue] = min(offset, ends.get(queue, offset))
        latest, lost = split_report(_parsed(source.latestOffset))
        for queue, offset in _offsets(latest).items():
            newest[queue] = max(offset, newest.get(queue, offset))
        losses.update(lost)
    return Progress(
        at=unix_seconds(report.timestamp),
        batch_id=report.batchId,
        batch_seconds=report.batchDuration / 1000,
        rows=sum(source.numInputRows for source, _ in sources),
        input_rows_per_second=sum(_rate(source, "inputRowsPerSecond") for source, _ in sources),
        processed_rows_per_second=sum(_rate(source, "processedRowsPerSecond") for source, _ in sources),
        ends=ends,
        newest=newest,
        losses=losses,
    )


def unix_seconds(timestamp: str) -> float:
    """Parse Spark's timestamps, such as 2026-01-31T12:00:00.000Z, to seconds since 1970 UTC. Raises
    ValueError.
    """
    return datetime.fromisoformat(timestamp).timestamp()


def _position(text: str) -> QueueOffsets:
    """Return a source's offsets; none if it has none yet (`None` or `null`), or is another connector's."""
    try:
        return StreamPosition.from_nested(_parsed(text)).offsets
    except BadOffsets:
        return QueueOffsets()


def _offsets(nested: object) -> QueueOffsets:
    try:
        return QueueOffsets.from_nested(nested)
    except BadOffsets:
        return QueueOffsets()


def _parsed(text: str) -> object:
    try:
        return parse_json(text)
    except (BadOffsets, TypeError):
        return None


def _rate(source: SourceProgress, name: str) -> float:
    """Return a rate; 0 if Spark divided by a duration of zero."""
    rate = float(source[name])
    return rate if math.isfinite(rate) else 0.0
