"""The write of a task: every row is acknowledged or kept as a dead letter, or the task fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from pyspark_rocketmq.errors import OptionError, RowRefused
from pyspark_rocketmq.sink.dead_letters import DeadLetterFile, DeadLetters, check_folder
from pyspark_rocketmq.sink.encoding import RowEncoder
from pyspark_rocketmq.sink.producer_pool import BlockingSender
from pyspark_rocketmq.sink.row_ids import TaskId
from pyspark_rocketmq.sink.sender import Sender
from pyspark_rocketmq.sink.settings import SinkSettings
from pyspark_rocketmq.sink.task_writer import TaskWriter
from rmq_client import BrokerError, ClientError, MessageQueue, Rejected
from rmq_client.loop_thread import LoopThread
from rmq_client.producer.encoding import Outgoing
from rmq_remoting.codes import ResponseCode
from rmq_remoting.message_batch import decode_batch
from rmq_remoting.message_properties import decode_properties
from tests.unit.spark.sink.samples import (
    STRING_MAP,
    TASK,
    FakeProducer,
    columns_of,
    rows,
    settings,
    unique_keys,
)

_Write = Callable[..., tuple[TaskWriter, DeadLetters]]


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread("test-sink")
    yield thread
    thread.signal_stop()
    thread.join()


@pytest.fixture
def write(thread: LoopThread) -> _Write:
    """Write batches through a producer. Return the task's writer and dead letters."""

    def run(
        producer: FakeProducer, *batches: pa.RecordBatch, **changes: Any
    ) -> tuple[TaskWriter, DeadLetters]:
        chosen = settings(**changes)

        async def make_sender() -> Sender:
            return Sender(producer, chosen)

        sender = BlockingSender(thread, thread.submit(make_sender()).result())
        return _write(sender, chosen, *batches)

    return run


def _write(
    sender: BlockingSender, chosen: SinkSettings, *batches: pa.RecordBatch
) -> tuple[TaskWriter, DeadLetters]:
    columns = columns_of(batches[0])
    dead_letters = DeadLetters(chosen, TASK, sender, unique_keys())
    encoder = RowEncoder(columns, chosen, TASK, unique_keys())
    writer = TaskWriter(columns, chosen, encoder, sender, dead_letters)
    try:
        writer.write(iter(batches))
        dead_letters.close()
    except BaseException:
        dead_letters.discard()
        raise
    return writer, dead_letters


def _no_large_ones(topic: str, queue: MessageQueue | None, outgoing: Outgoing) -> ClientError | None:
    if len(outgoing.body) > 2000:
        return Rejected(ResponseCode.MESSAGE_ILLEGAL, "too large for me", "127.0.0.1:1")
    return None


def _sent(producer: FakeProducer) -> list[tuple[str, bytes]]:
    return [(topic, body) for topic, _, bodies in producer.sent for body in bodies]


def test_all_rows_of_all_batches_are_sent_and_counted(write: _Write) -> None:
    producer = FakeProducer()
    batches = [rows(body=[b"%d" % number for number in range(n, n + 700)]) for n in (0, 700, 1400)]
    batches.insert(1, rows(body=pa.array([], pa.binary())))
    writer, dead_letters = write(producer, *batches)
    assert writer.rows == 2100
    assert dead_letters.count == 0
    assert sorted(body for _, body in _sent(producer)) == sorted(b"%d" % number for number in range(2100))


def test_large_batch_is_sliced_with_continuous_row_numbers(write: _Write) -> None:
    ids: list[str] = []

    def note(topic: str, queue: MessageQueue | None, outgoing: Outgoing) -> None:
        ids.extend(
            decode_properties(item.raw_properties)["SPARK_ROW_ID"] for item in decode_batch(outgoing.body)
        )

    producer = FakeProducer(problem=note)
    write(producer, rows(body=[b"x" * 900] * 25_000), batch_rows=1000)
    assert len(producer.sent) == 25
    assert sorted(ids) == sorted(f"query:7:3:{row}" for row in range(25_000))


def test_rejected_row_fails_the_task_without_dead_letters(write: _Write) -> None:
    batch = rows(body=[b"a", b"x" * 3000, b"c"])
    with pytest.raises(
        RowRefused, match=r"topic 'T', row query:7:3:1, because .*too large for me.*deadLetterTopic"
    ):
        write(FakeProducer(problem=_no_large_ones), batch)
    with pytest.raises(RowRefused, match=r"topic null, row query:7:3:0, because its topic is null"):
        write(FakeProducer(), rows(body=[b"a"], topic=pa.array([None], pa.string())), topic=None)


def test_other_failures_cancel_requests_in_flight(write: _Write) -> None:
    producer = FakeProducer(problem=lambda *_: BrokerError(4711, "?", "127.0.0.1:1"))
    with pytest.raises(BrokerError, match="4711"):
        write(producer, *[rows(body=[b"a"] * 3000)] * 3)
    assert producer.in_flight == 0


def test_error_of_the_row_iterator_is_raised(write: _Write, thread: LoopThread) -> None:
    producer = FakeProducer()

    async def make_sender() -> Sender:
        return Sender(producer, settings())

    def broken() -> Iterator[pa.RecordBatch]:
        yield rows(body=[b"a"])
        raise KeyError("upstream")

    sender = BlockingSender(thread, thread.submit(make_sender()).result())
    columns = columns_of(rows(body=[b"a"]))
    dead_letters = DeadLetters(settings(), TASK, sender, unique_keys())
    encoder = RowEncoder(columns, settings(), TASK, unique_keys())
    with pytest.raises(KeyError, match="upstream"):
        TaskWriter(columns, settings(), encoder, sender, dead_letters).write(broken())


def test_dead_letters_carry_reason_and_origin(write: _Write) -> None:
    producer = FakeProducer()
    kept: list[dict[str, str]] = []

    def problem(topic: str, queue: MessageQueue | None, outgoing: Outgoing) -> ClientError | None:
        if topic == "DEAD":
            kept.append(decode_properties(outgoing.properties))
            return None
        return _no_large_ones(topic, queue, outgoing)

    producer.problem = problem
    batch = rows(
        body=[b"a", b"x" * 3000],
        tags=["t", "u"],
        keys=[["k"], ["k1", "k2"]],
        properties=pa.array([[], [("mine", "1"), ("UNIQ_KEY", "old")]], STRING_MAP),
        delayTimeLevel=pa.array([0, 2], pa.int32()),
    )
    writer, dead_letters = write(producer, batch, dead_letter_topic="DEAD")
    assert (writer.rows, dead_letters.count) == (2, 1)
    assert _sent(producer) == [("T", b"a"), ("DEAD", b"x" * 3000)]
    (properties,) = kept
    assert "too large for me" in properties.pop("SPARK_REFUSED_BECAUSE")
    assert len(properties.pop("UNIQ_KEY")) == 32
    assert properties == {
        "TAGS": "u",
        "KEYS": "k1 k2",
        "mine": "1",
        "SPARK_ROW_ID": "query:7:3:1",
        "DLQ_ORIGIN_TOPIC": "T",
    }


def test_dead_letters_keep_tags_and_keys_from_properties(write: _Write) -> None:
    kept: list[dict[str, str]] = []

    def problem(topic: str, queue: MessageQueue | None, outgoing: Outgoing) -> ClientError | None:
        if topic == "DEAD":
            kept.append(decode_properties(outgoing.properties))
        return None if topic == "DEAD" else Rejected(ResponseCode.MESSAGE_ILLEGAL, "no", "127.0.0.1:1")

    pairs = [("TAGS", "t"), ("KEYS", "k1 k2"), ("__SHARDINGKEY", "s"), ("mine", "1"), ("DELAY", "3")]
    maps = pa.array([pairs], STRING_MAP)
    write(FakeProducer(problem=problem), rows(body=[b"1"], properties=maps), dead_letter_topic="DEAD")
    chosen = rows(body=[b"1"], properties=maps, tags=["own"], shardingKey=["mine"])
    write(FakeProducer(problem=problem), chosen, dead_letter_topic="DEAD")
    names = ("TAGS", "KEYS", "__SHARDINGKEY", "mine", "DELAY")
    assert [[row.get(name) for name in names] for row in kept] == [
        ["t", "k1 k2", "s", "1", None],
        ["own", "k1 k2", "mine", "1", None],
    ]


@pytest.mark.parametrize(
    ("write_id", "name"),
    [
        ("alerts/2026", "alerts%2F2026-0-1.parquet"),
        ("../up", "%2E.%2Fup-0-1.parquet"),
        ("_a:7", "%5Fa%3A7-0-1.parquet"),
        ("a.b_c-d", "a.b_c-d-0-1.parquet"),
    ],
)
def test_write_id_is_quoted_in_file_names(tmp_path: Path, write_id: str, name: str) -> None:
    file = DeadLetterFile(str(tmp_path / "dead"), TaskId(write_id, "0", 1))
    file.add(rows(body=[b"a"]), pa.array([b"id"]), ["reason"])
    file.close()
    assert [path.name for path in (tmp_path / "dead").iterdir()] == [name]


def test_row_that_fits_no_message_needs_the_dead_letter_path(write: _Write) -> None:
    batch = rows(body=[b"a", None])
    with pytest.raises(RowRefused, match=r"body is null.*no dead letter"):
        write(FakeProducer(), batch, dead_letter_topic="DEAD")


def test_dead_letter_path_takes_rows_that_the_topic_cannot_hold(write: _Write, tmp_path: Path) -> None:
    def problem(topic: str, queue: MessageQueue | None, outgoing: Outgoing) -> ClientError | None:
        return _no_large_ones(topic, queue, outgoing)

    producer = FakeProducer(problem=problem)
    batch = rows(body=[b"a", None, b"x" * 3000, b"d"], tags=["1", "2", "3", "x\x02"])
    _, dead_letters = write(
        producer, batch, dead_letter_topic="DEAD", dead_letter_path=str(tmp_path / "dead" / "letters")
    )
    assert dead_letters.count == 3
    assert _sent(producer) == [("T", b"a")]
    (file,) = (tmp_path / "dead" / "letters").iterdir()
    assert file.name == "query-7-3.parquet"
    found = pyarrow.parquet.read_table(file).to_pylist()
    assert [(row["rowId"], row["tags"], row["body"]) for row in found] == [
        ("query:7:3:1", "2", None),
        ("query:7:3:2", "3", b"x" * 3000),
        ("query:7:3:3", "x\x02", b"d"),
    ]
    assert "rejected as a dead letter, too" in found[1]["reason"]


def test_dead_letter_file_has_the_row_ids_of_the_column(write: _Write, tmp_path: Path) -> None:
    write(FakeProducer(), rows(body=[b"a", b""], rowId=["one", "two"]), dead_letter_path=str(tmp_path))
    (file,) = tmp_path.iterdir()
    assert pyarrow.parquet.read_table(file).column_names == ["rowId", "reason", "body"]
    assert pyarrow.parquet.read_table(file).column("rowId").to_pylist() == ["two"]


def test_repeated_task_replaces_its_file_and_failed_task_leaves_none(write: _Write, tmp_path: Path) -> None:
    folder = tmp_path / "dead"
    refusing = FakeProducer()
    for _ in range(2):
        write(refusing, rows(body=[b"a", b""]), rows(body=[b"", b"b"]), dead_letter_path=folder.as_uri())
    (file,) = folder.iterdir()
    assert pyarrow.parquet.read_table(file).column("rowId").to_pylist() == ["query:7:3:1", "query:7:3:2"]
    file.unlink()
    failing = FakeProducer(problem=lambda *_: BrokerError(4711, "?", "127.0.0.1:1"))
    with pytest.raises(BrokerError):
        write(failing, rows(body=[b""]), rows(body=[b""]), rows(body=[b"a"]), dead_letter_path=str(folder))
    assert list(folder.iterdir()) == []


def test_path_must_be_absolute_or_a_uri(tmp_path: Path) -> None:
    check_folder(str(tmp_path))
    with pytest.raises(OptionError, match="deadLetterPath is 'somewhere/else': it must be an absolute path"):
        check_folder("somewhere/else")
