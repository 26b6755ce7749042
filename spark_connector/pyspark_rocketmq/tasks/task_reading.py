"""The read of one task on an executor: fetches its ranges, decodes them and yields Arrow batches."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ..decoding import ColumnDecoder
from ..errors import DataLoss
from ..stream_losses import uncovered
from ..worker_process import prepare_worker
from .connection_pool import Connection, connection_pool
from .fetching import Fetched, RangeFetch
from .partitions import FetchSettings, ReportAddress, TaskSettings
from .ranges import QueueRange, ReadTask

log = logging.getLogger(__name__)

# Batches of fewer rows are concatenated: each batch costs Spark as much as thousands of rows.
_FEW_ROWS: Final = 2000
# How many small ranges are fetched concurrently.
_MAX_OPEN_RANGES: Final = 16
_STOP_TIMEOUT_SECONDS: Final = 5.0


def read_task(
    task: ReadTask, settings: TaskSettings, report_to: ReportAddress | None = None
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the messages of a task's ranges, one range after the other, in the order of their offsets.

    `report_to`: where the driver takes a report of lost messages, at the end of the task.

    Raises DataLoss, SourceUnavailable, RecordDamaged, ClientError.
    """
    if settings.tune_worker:
        prepare_worker()
    decoder = ColumnDecoder(
        settings.schema.names,
        properties_mode=settings.properties_mode,  # type: ignore[arg-type]  # checked with the options
        check_crc=settings.check_crc,
        decompress=settings.decompress,
        schema=settings.schema,
        tags=settings.fetch.tags,
        max_body_bytes=settings.connection.settings.max_unpacked_body_bytes,
    )
    lost: list[QueueRange] = []
    with connection_pool().lease(settings.connection) as connection:
        yield from _combined(
            _decoded(decoder, _fetched(connection, task.ranges, settings.fetch), settings, lost),
            settings.fetch.batch_bytes,
        )
    if report_to is not None:
        from .loss_reports import LossReport, reporter  # noqa: PLC0415

        reporter().send(LossReport(list(task.ranges), lost), report_to)


def _decoded(
    decoder: ColumnDecoder,
    fetched: Iterator[tuple[QueueRange, Fetched]],
    settings: TaskSettings,
    lost: list[QueueRange],
) -> Iterator[pa.RecordBatch]:
    """Yield decoded batches, and add lost ranges to `lost`."""
    for wanted, chunk in fetched:
        key = wanted.key
        messages = 0
        for decoded in decoder.decode_in_parts(
            key.topic, key.broker, key.queue_id, chunk.bodies, begin=chunk.begin, end=chunk.end
        ):
            messages += decoded.messages
            yield decoded.batch
        lost += [QueueRange(key, begin, end) for begin, end in chunk.lost_ranges]
        if not settings.fetch.filters and chunk.end - chunk.begin - chunk.lost > messages:
            missing = _missing(wanted, chunk, settings)
            _tell_missing(wanted, chunk, sum(each.size for each in missing), settings.fetch)
            lost += missing


def _missing(wanted: QueueRange, chunk: Fetched, settings: TaskSettings) -> list[QueueRange]:
    """Return the offsets without a message that are not known to be lost. Without a filter, there are none.

    Brokers leave out messages that they delete at that moment (Apache RocketMQ 5.3.3,
    DefaultMessageStore.getMessage). The chunk is decoded again, because batches may lack the offsets.
    """
    key = wanted.key
    decoder = ColumnDecoder(
        ["queueOffset"], max_body_bytes=settings.connection.settings.max_unpacked_body_bytes
    )
    known = [
        (offset, offset + 1)
        for decoded in decoder.decode_in_parts(
            key.topic, key.broker, key.queue_id, chunk.bodies, begin=chunk.begin, end=chunk.end
        )
        for offset in decoded.batch.column(0).to_pylist()
    ]
    gaps = uncovered(chunk.begin, chunk.end, known + chunk.lost_ranges)
    return [QueueRange(key, begin, end) for begin, end in gaps]


def _tell_missing(wanted: QueueRange, chunk: Fetched, missing: int, settings: FetchSettings) -> None:
    """Log offsets that had no message. Raises DataLoss if failOnDataLoss is true."""
    text = (
        f"{wanted.key}: {missing} of the offsets {chunk.begin} to {chunk.end - 1} had no message: deleted "
        "during the read, or removed by compaction (for a compacted topic, set failOnDataLoss to false)"
    )
    if settings.fail_on_data_loss:
        raise DataLoss(text)
    log.warning("messages skipped because failOnDataLoss is false: %s", text)


def _combined(batches: Iterator[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Drop empty batches and concatenate small ones, up to `most_bytes`."""
    small: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if small and size_bytes + batch.nbytes > most_bytes:
            yield from _concatenated(small)
            small, rows, size_bytes = [], 0, 0
        small.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= _FEW_ROWS or size_bytes >= most_bytes:
            yield from _concatenated(small)
            small, rows, size_bytes = [], 0, 0
    yield from _concatenated(small)


def _concatenated(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Concatenate batches into one. Arrow returns several if a column has 2 GiB or more."""
    if len(batches) <= 1:
        return batches
    together: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return together


# --- prefetching ---


@dataclass(slots=True)
class _OpenRange:
    """A range that is being fetched. `following`: its next batch."""

    wanted: QueueRange
    fetch: RangeFetch
    following: Future[Fetched | None]


def _fetched(
    connection: Connection, ranges: Sequence[QueueRange], settings: FetchSettings
) -> Iterator[tuple[QueueRange, Fetched]]:
    """Yield all batches of all ranges, in order, while the next ones are prefetched."""
    puller = connection.puller
    waiting = deque(ranges)
    opened: deque[_OpenRange] = deque()
    try:
        while waiting or opened:
            while waiting and _may_open(opened, waiting[0], settings):
                opened.append(_open(connection, waiting.popleft(), settings))
            current = opened[0]
            chunk = current.following.result()
            if chunk is None:
                opened.popleft()
                continue
            current.following = puller.submit(current.fetch.next())
            yield current.wanted, chunk
    finally:
        for left in opened:
            left.following.cancel()
            puller.submit(left.fetch.stop()).result(_STOP_TIMEOUT_SECONDS)


def _may_open(opened: Sequence[_OpenRange], wanted: QueueRange, settings: FetchSettings) -> bool:
    """Return whether another range may be opened: the first one always, others while all fit one batch."""
    if not opened:
        return True
    return (
        len(opened) < _MAX_OPEN_RANGES
        and sum(each.wanted.size for each in opened) + wanted.size <= settings.batch_messages
    )


def _open(connection: Connection, wanted: QueueRange, settings: FetchSettings) -> _OpenRange:
    size = connection.pull_size(wanted.key.broker, settings.pull_max_messages)
    fetch = RangeFetch(connection.puller, wanted, settings, size, time.monotonic)

    async def begin() -> Fetched | None:
        fetch.start()
        return await fetch.next()

    return _OpenRange(wanted, fetch, connection.puller.submit(begin()))
