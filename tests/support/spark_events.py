"""Events for a listener, written by hand in the form of PySpark 4.3."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

# {queue id: offset} of broker a, or another form that a source may use for its offset.
Offsets = Mapping[int, int] | str | int | None

QUERY, RUN = str(UUID(int=1)), str(UUID(int=11))


def timestamp(at: float) -> str:
    """Format a time as Spark does."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def offsets_of(topic: str, offsets: Mapping[int, int]) -> dict[str, Any]:
    return {topic: {"a": {str(queue_id): offset for queue_id, offset in offsets.items()}}}


def source(end: Offsets, newest: Offsets, topic: str = "T", rows: int = 10, **more: Any) -> dict[str, Any]:
    """Return one source of a report."""

    def nested(offsets: Offsets) -> Any:
        return offsets_of(topic, offsets) if isinstance(offsets, Mapping) else offsets

    return {
        "description": "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1",
        "startOffset": None,
        "endOffset": nested(end),
        "latestOffset": nested(newest),
        "numInputRows": rows,
        "inputRowsPerSecond": 5.0,
        "processedRowsPerSecond": 20.0,
        **more,
    }


def progress(
    at: float,
    *sources: dict[str, Any],
    query: str = QUERY,
    run: str = RUN,
    name: str | None = "orders",
    batch: int = 0,
) -> QueryProgressEvent:
    """Return the end of a batch whose trigger began at `at`."""
    report = {
        "id": query,
        "runId": run,
        "name": name,
        "timestamp": timestamp(at),
        "batchId": batch,
        "batchDuration": 1500,
        "stateOperators": [],
        "sources": list(sources),
        "sink": {"description": "sink", "numOutputRows": 1},
    }
    # Parsed from text, as with Spark Connect.
    return QueryProgressEvent(StreamingQueryProgress.fromJson(json.loads(json.dumps(report))))


def idle(at: float, query: str = QUERY, run: str = RUN) -> QueryIdleEvent:
    return QueryIdleEvent(UUID(query), UUID(run), timestamp(at))


def ended(query: str = QUERY, run: str = RUN) -> QueryTerminatedEvent:
    return QueryTerminatedEvent(UUID(query), UUID(run), None, None)
