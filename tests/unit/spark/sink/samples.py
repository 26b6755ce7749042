"""Shared by the sink's tests: columns in Arrow, encoders, and a producer that records its requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pyspark_rocketmq.sink.encoding import EncodedRows, RowEncoder
from pyspark_rocketmq.sink.row_ids import TaskId, UniqueKeys
from pyspark_rocketmq.sink.schema import SinkColumns
from pyspark_rocketmq.sink.send_requests import SendRequest
from pyspark_rocketmq.sink.settings import SinkSettings
from rmq_client import ClientError, MessageQueue, SendStatus
from rmq_client.producer.encoding import Outgoing, Stored
from rmq_remoting.message_batch import decode_batch
from rmq_remoting.message_ids import UniqueKeyGenerator
from rmq_remoting.message_properties import decode_properties

NOW_MS = 1_700_000_000_000
TASK = TaskId("query", "7", 3)
STRING_MAP = pa.map_(pa.string(), pa.string())
QUEUES = tuple(MessageQueue("T", "broker-a", queue_id) for queue_id in range(4))

Properties = dict[str, str]


def settings(**changes: Any) -> SinkSettings:
    return SinkSettings("127.0.0.1:9876", "g", **{"topic": "T", **changes})


def unique_keys() -> UniqueKeys:
    return UniqueKeys(UniqueKeyGenerator("10.0.0.1", 1, 2, lambda: NOW_MS))


def columns_of(batch: pa.RecordBatch) -> SinkColumns:
    return SinkColumns({name: place for place, name in enumerate(batch.schema.names)})


def rows(**columns: Any) -> pa.RecordBatch:
    """Return a record batch; lists become arrays of the type that Arrow infers."""
    arrays = [one if isinstance(one, pa.Array) else pa.array(one) for one in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def encode(batch: pa.RecordBatch, first_row: int = 0, **changes: Any) -> EncodedRows:
    encoder = RowEncoder(columns_of(batch), settings(**changes), TASK, unique_keys())
    return encoder.encode(batch, first_row)


def messages(request: SendRequest) -> list[tuple[bytes, Properties]]:
    """Decode body and properties of each message in a request, as a broker does."""
    outgoing = request.outgoing
    if not outgoing.batch:
        return [(outgoing.body, decode_properties(outgoing.properties))]
    return [(item.body, decode_properties(item.raw_properties)) for item in decode_batch(outgoing.body)]


@dataclass
class FakeProducer:
    """Acknowledges sends at once, unless the test sets errors (`problem`) or holds them back (`gate`)."""

    problem: Callable[[str, MessageQueue | None, Outgoing], ClientError | None] = lambda *_: None
    brokers: bool = True
    gate: asyncio.Event | None = None
    sent: list[tuple[str, MessageQueue | None, list[bytes]]] = field(default_factory=list)
    in_flight: int = 0
    max_in_flight: int = 0
    topic_errors: deque[ClientError] = field(default_factory=deque)

    async def queues(self, topic: str, timeout_seconds: float) -> tuple[MessageQueue, ...]:
        if self.topic_errors:
            raise self.topic_errors.popleft()
        return QUEUES

    async def has_brokers(self) -> bool:
        return self.brokers

    async def send(
        self, topic: str, queue: MessageQueue | None, outgoing: Outgoing, timeout_seconds: float
    ) -> Stored:
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            await asyncio.sleep(0)
            if self.gate is not None:
                await self.gate.wait()
            error = self.problem(topic, queue, outgoing)
            if error is not None:
                raise error
            bodies = (
                [item.body for item in decode_batch(outgoing.body)] if outgoing.batch else [outgoing.body]
            )
            self.sent.append((topic, queue, bodies))
            return Stored(SendStatus.SEND_OK, "", 0, 0)
        finally:
            self.in_flight -= 1
