"""The content of a task and its settings: the driver makes them, and executors read by them.

Apart from the code that reads, which the driver does not import.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rmq_client.settings import ClientSettings

from .ranges import ReadTask

# The first block of a UUID.
_QUERY_ID_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class ConnectionKey:
    """The cluster, the consumer group and the client settings of a connection. Sent to executors with each
    task.
    """

    namesrv: str
    group: str
    settings: ClientSettings = field(default_factory=ClientSettings)


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How ranges are read. A batch ends when it reaches `batch_messages` or `batch_bytes`."""

    expression: str = "*"
    expression_type: str = "TAG"
    pull_max_messages: int = 1024
    pull_max_bytes: int = 4 * 1024 * 1024
    pulls_in_flight: int = 16
    batch_messages: int = 8192
    batch_bytes: int = 8 * 1024 * 1024
    unavailable_timeout_seconds: float = 120.0
    fail_on_data_loss: bool = True

    @property
    def filters(self) -> bool:
        """Whether brokers filter the messages."""
        return self.expression != "*" or self.expression_type != "TAG"

    @property
    def tags(self) -> frozenset[str] | None:
        """The tags to keep; None if the filter is not by tags.

        Brokers compare hash codes of tags, which different tags may share (Apache RocketMQ 5.3.3, FilterAPI
        and PullAPIWrapper.processPullResult).
        """
        if not self.filters or self.expression_type != "TAG":
            return None
        return frozenset(tag.strip() for tag in self.expression.split("||") if tag.strip())


@dataclass(frozen=True, slots=True)
class ReportAddress:
    """Where the driver accepts reports of losses. `token`: proves that a task of the query sent a report."""

    host: str
    port: int
    token: str


class TaskPartition(InputPartition):
    """The content of one task, which Spark sends to the executor. `report_to`: None for no report."""

    def __init__(self, task: ReadTask, report_to: ReportAddress | None = None) -> None:
        super().__init__(task)
        self.task = task
        self.report_to = report_to


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Everything that executors need to know about a query. Pickled with each task.

    `group_by_query`: each streaming query has a consumer group of its own.
    """

    connection: ConnectionKey
    fetch: FetchSettings
    schema: pa.Schema
    properties_mode: str
    check_crc: bool
    decompress: bool
    tune_worker: bool = True
    group_by_query: bool = False

    def of_query(self, query_id: str | None) -> TaskSettings:
        """Return the settings for one streaming query. `query_id`: its id in the checkpoint, if known."""
        if not (self.group_by_query and query_id):
            return self
        group = f"{self.connection.group}-{query_id[:_QUERY_ID_DIGITS]}"
        return replace(self, connection=replace(self.connection, group=group))
