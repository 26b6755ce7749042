"""The systems under comparison as Spark uses them: reading, writing, and feeding a topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark.topics import QUEUES, REGION, TAGS, Filling, fill_rocketmq
from rmq_client import Message, MessageQueue
from rmq_client.blocking import Admin, Producer, run

_BYTES: Final = "org.apache.kafka.common.serialization.ByteArraySerializer"
_EARLIEST: Final = {"startingOffsets": "earliest"}
# Numbers rows as `topics.fill_rocketmq` numbers messages.
_KAFKA_ROWS: Final = (
    "concat('order-', lpad(cast(id as string), 12, '0')) AS key",
    "rpad(lpad(cast(id as string), 16, '0'), {size}, 'x') AS value",
    f"cast(id % {QUEUES} as int) AS partition",
)
_KAFKA_HEADERS: Final = (
    f"array(struct('tag' AS key, cast(element_at(array{TAGS}, cast(id % {len(TAGS)} + 1 AS int)) AS binary) "
    f"AS value), struct('region' AS key, cast('{REGION}' AS binary) AS value)) AS headers"
)


# The names of the systems in the tables.
CONNECTOR: Final = "this connector"
LEAN: Final = f"{CONNECTOR}, `columns=lean`"
KAFKA: Final = "Kafka's source"


class Feeder(Protocol):
    """Sends messages to one topic, a number of them to each queue."""

    def feed(self, for_each_queue: int) -> None:
        """Send and wait for all acknowledgements."""


class Side(Protocol):
    """A broker, and the Spark source and sink for it."""

    @property
    def name(self) -> str:
        """Name in the tables."""

    @property
    def broker_pid(self) -> int:
        """Process id whose CPU is counted."""

    def fill(self, filling: Filling) -> None:
        """Create and fill the topic."""

    @property
    def cold_arguments(self) -> list[str]:
        """Return the arguments of `benchmarks.spark.cold_start`, besides the topic."""

    def batch(self, filling: Filling) -> DataFrame:
        """Return a batch read of the whole topic, with the columns of this side."""

    def stream(self, topic: str, options: dict[str, str]) -> DataFrame:
        """Return the same as a stream from the beginning."""

    def write(self, rows: DataFrame, topic: str) -> None:
        """Write rows, whose column `body` is the message body."""

    def feeder(self, topic: str, body_bytes: int) -> Any:
        """Return a context manager with a Feeder for a new topic."""


@dataclass(frozen=True, slots=True)
class RocketMQ:
    """This connector with this project's broker. `options`: of reads, besides the topic."""

    spark: SparkSession
    name: str
    namesrv: str
    broker_name: str
    broker_pid: int
    options: Mapping[str, str] = field(default_factory=dict)

    def fill(self, filling: Filling) -> None:
        run(fill_rocketmq(self.namesrv, filling))

    @property
    def cold_arguments(self) -> list[str]:
        return _arguments("rocketmq", self._options(""))

    def batch(self, filling: Filling) -> DataFrame:
        return self.spark.read.format("rocketmq").options(**self._options(filling.topic)).load()

    def stream(self, topic: str, options: dict[str, str]) -> DataFrame:
        wanted = self._options(topic) | _EARLIEST | options
        return self.spark.readStream.format("rocketmq").options(**wanted).load()

    def write(self, rows: DataFrame, topic: str) -> None:
        with Admin(self.namesrv) as admin:
            admin.create_topic(topic, queues=QUEUES, exists_ok=True)
        options = {"rocketmq.namesrv.addr": self.namesrv, "topic": topic}
        rows.write.format("rocketmq").options(**options).mode("append").save()

    @contextmanager
    def feeder(self, topic: str, body_bytes: int) -> Iterator[_RocketMQFeeder]:
        with Admin(self.namesrv) as admin:
            admin.create_topic(topic, queues=QUEUES, exists_ok=True)
        with Producer(self.namesrv, group="bench-feed") as producer:
            yield _RocketMQFeeder(producer, topic, self.broker_name, b"x" * body_bytes)

    def _options(self, topic: str) -> dict[str, str]:
        return {"rocketmq.namesrv.addr": self.namesrv, "subscribe": topic} | dict(self.options)


@dataclass(frozen=True, slots=True)
class _RocketMQFeeder:
    producer: Producer
    topic: str
    broker_name: str
    body: bytes

    def feed(self, for_each_queue: int) -> None:
        for number in range(QUEUES):
            messages = [Message(self.topic, self.body) for _ in range(for_each_queue)]
            self.producer.send_batch(messages, queue=MessageQueue(self.topic, self.broker_name, number))


@dataclass(frozen=True, slots=True)
class Kafka:
    """Spark's Kafka source with Apache Kafka."""

    spark: SparkSession
    address: str
    broker_pid: int
    name: str = KAFKA

    def fill(self, filling: Filling) -> None:
        """Write with Spark's Kafka sink."""
        self._create_topic(filling.topic)
        rows = [text.format(size=filling.body_bytes) for text in _KAFKA_ROWS]
        if filling.headers:
            rows.append(_KAFKA_HEADERS)
        self._save(self.spark.range(filling.messages).selectExpr(*rows), filling.topic)

    @property
    def cold_arguments(self) -> list[str]:
        return _arguments("kafka", self._options(""))

    def batch(self, filling: Filling) -> DataFrame:
        """Select all default columns, and headers if the topic has some."""
        options = self._options(filling.topic) | {"includeHeaders": str(filling.headers).lower()}
        return self.spark.read.format("kafka").options(**options).load()

    def stream(self, topic: str, options: dict[str, str]) -> DataFrame:
        wanted = self._options(topic) | _EARLIEST | options
        return self.spark.readStream.format("kafka").options(**wanted).load()

    def write(self, rows: DataFrame, topic: str) -> None:
        self._create_topic(topic)
        self._save(rows.selectExpr("body AS value"), topic)

    @contextmanager
    def feeder(self, topic: str, body_bytes: int) -> Iterator[_KafkaFeeder]:
        """Feed with Kafka's producer in Spark's JVM."""
        self._create_topic(topic)
        clients = self._jvm.org.apache.kafka.clients.producer
        producer = clients.KafkaProducer(
            self._properties({"key.serializer": _BYTES, "value.serializer": _BYTES})
        )
        body = b"x" * body_bytes
        try:
            # The same record can be sent repeatedly.
            yield _KafkaFeeder(
                producer, [clients.ProducerRecord(topic, number, None, body) for number in range(QUEUES)]
            )
        finally:
            producer.close()

    @property
    def _jvm(self) -> Any:
        return self.spark.sparkContext._jvm

    def _properties(self, more: Mapping[str, str]) -> Any:
        properties = self._jvm.java.util.Properties()
        for name, value in {"bootstrap.servers": self.address, **more}.items():
            properties.setProperty(name, value)
        return properties

    def _create_topic(self, topic: str) -> None:
        util, admins = self._jvm.java.util, self._jvm.org.apache.kafka.clients.admin
        admin = admins.AdminClient.create(self._properties({}))
        try:
            wanted = admins.NewTopic(topic, util.Optional.of(QUEUES), util.Optional.empty())
            admin.createTopics(util.List.of(wanted)).all().get()
            # An idempotent producer can lose the first records to a partition that its leader has not created
            # yet: they arrive after later ones and are rejected. A leader that answers requests for offsets
            # has created the partition.
            asked = util.HashMap()
            for number in range(QUEUES):
                partition = self._jvm.org.apache.kafka.common.TopicPartition(topic, number)
                asked.put(partition, admins.OffsetSpec.latest())
            admin.listOffsets(asked).all().get()
        finally:
            admin.close()

    def _save(self, rows: DataFrame, topic: str) -> None:
        options = {"kafka.bootstrap.servers": self.address, "topic": topic}
        rows.write.format("kafka").options(**options).mode("append").save()

    def _options(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.address, "subscribe": topic}


@dataclass(slots=True)
class _KafkaFeeder:
    producer: Any
    records: list[Any]
    fed: int = 0  # to each partition

    def feed(self, for_each_queue: int) -> None:
        last = [self._send(record, for_each_queue) for record in self.records]
        self.producer.flush()
        self.fed += for_each_queue
        # A send that fails at once reports it only in its own future: the offsets show whether one is
        # missing.
        offsets = [sent.get().offset() for sent in last]
        if offsets != [self.fed - 1] * len(offsets):
            raise RuntimeError(f"Kafka lacks records: the last offsets are {offsets}, {self.fed} were sent")

    def _send(self, record: Any, count: int) -> Any:
        for _ in range(count - 1):
            self.producer.send(record)
        return self.producer.send(record)


def _arguments(source: str, options: Mapping[str, str]) -> list[str]:
    """Return a source and its options, without the topic, as arguments."""
    pairs = [f"{name}={value}" for name, value in options.items() if name != "subscribe"]
    return ["--source", source, *(word for pair in pairs for word in ("--option", pair))]
