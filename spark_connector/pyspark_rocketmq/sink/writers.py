"""Spark's writers: created on the driver, where everything is checked, and run on executors."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ..spark_versions import DataSourceStreamArrowWriter
from ..worker_process import prepare_worker
from .schema import SinkColumns
from .settings import SinkSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from .row_ids import TaskId

log = logging.getLogger(__name__)

# Local properties that Spark sets for the tasks of a streaming query (StreamExecution, MicroBatchExecution).
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
# Batch id of a write that does not belong to a stream.
_ONLY_BATCH: Final = "0"


@dataclass(frozen=True, slots=True)
class SinkCommit(WriterCommitMessage):
    """Result of one task: all its rows are acknowledged, except those kept as dead letters."""

    rows: int
    dead_letters: int


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame, without rollback: messages of a failed write stay in the topics."""

    def __init__(self, columns: SinkColumns, settings: SinkSettings) -> None:
        self._columns = columns
        self._settings = settings
        self._write_id = settings.write_id or secrets.token_hex(16)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkCommit:
        """Write the rows of a partition on an executor and wait for all acknowledgements."""
        task = _task_id(self._write_id, _ONLY_BATCH, _context())
        return _write(self._columns, self._settings, task, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the end of the write on the driver."""
        _log_commit("write", self._write_id, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the failure of the write on the driver."""
        _log_abort("write", self._write_id, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query."""

    def __init__(self, columns: SinkColumns, settings: SinkSettings) -> None:
        self._columns = columns
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkCommit:
        """Write the rows of a partition on an executor and wait for all acknowledgements."""
        context = _context()
        task = _task_id(_property(context, _QUERY_ID), _property(context, _BATCH_ID), context)
        return _write(self._columns, self._settings, task, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the end of a micro-batch on the driver."""
        _log_commit("micro-batch", batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the failure of a micro-batch on the driver."""
        _log_abort("micro-batch", batchId, messages)


def _task_id(query_id: str, batch_id: str, context: TaskContext) -> TaskId:
    # Imported here because the driver, which plans and commits a write, does without Arrow's functions.
    from .row_ids import TaskId  # noqa: PLC0415

    return TaskId(query_id, batch_id, context.partitionId())


def _write(columns: SinkColumns, settings: SinkSettings, task: TaskId, batches: Iterator[Any]) -> SinkCommit:
    # Imported here because the driver needs none of it, and imports take time.
    from .dead_letters import DeadLetters  # noqa: PLC0415
    from .encoding import RowEncoder  # noqa: PLC0415
    from .producer_pool import producer_pool  # noqa: PLC0415
    from .task_writer import TaskWriter  # noqa: PLC0415

    if settings.tune_worker:
        prepare_worker()
    here = producer_pool()
    with here.sender(settings) as sender:
        dead_letters = DeadLetters(settings, task, sender, here.unique_keys)
        encoder = RowEncoder(columns, settings, task, here.unique_keys)
        writer = TaskWriter(columns, settings, encoder, sender, dead_letters)
        try:
            writer.write(batches)
            dead_letters.close()
        except BaseException:
            dead_letters.discard()
            raise
        return SinkCommit(writer.rows, dead_letters.count)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("a writer's write() was called outside of a Spark task")
    return context


def _property(context: TaskContext, name: str) -> str:
    value = context.getLocalProperty(name)
    if not value:
        raise RuntimeError(f"Spark set no local property {name} for the task of a stream")
    return value


def _log_commit(what: str, name: object, messages: Sequence[WriterCommitMessage | None]) -> None:
    done = [message for message in messages if isinstance(message, SinkCommit)]
    rows, dead = sum(one.rows for one in done), sum(one.dead_letters for one in done)
    log.info("rows written %s=%s rows=%d", what, name, rows - dead)
    if dead:
        log.warning("rows rejected, kept as dead letters %s=%s rejected=%d rows=%d", what, name, dead, rows)


def _log_abort(what: str, name: object, messages: Sequence[WriterCommitMessage | None]) -> None:
    done = sum(isinstance(message, SinkCommit) for message in messages)
    log.warning("write failed, messages sent stay in the topics %s=%s ended_tasks=%d", what, name, done)
