"""Queue entries from records; recovery's tests cover damaged records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_broker.store.delay_levels import DelayLevels
from rmq_broker.store.log.commit_log import CommitLog
from rmq_broker.store.log.record import RecordSummary
from rmq_broker.store.queues.batch_consume_queue import BatchConsumeQueue, BatchEntry
from rmq_broker.store.queues.consume_queues import ConsumeQueues
from rmq_broker.store.queues.dispatcher import Dispatcher, messages_in, tags_code_of
from rmq_remoting.java_hash import tags_code
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.golden import json_file
from tests.support.rows import each_row

STORED_MS = 1_700_000_000_000
# The append limits a level to the highest.
DELAYS = [row for row in json_file("hashes.json")["delay_tags_code"]["cases"] if row["level"] <= 18]


BATCH = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP


def record(
    queue_offset: int = 0, at: int = 0, properties: bytes = b"", topic: str = "TopicA", sys_flag: int = 0
) -> RecordSummary:
    return RecordSummary(at, 100, topic, 0, queue_offset, sys_flag, STORED_MS, properties)


@pytest.fixture
def queues(tmp_path: Path) -> Iterator[ConsumeQueues]:
    queues = ConsumeQueues(tmp_path / "consumequeue", 6000)
    yield queues
    queues.close()


def dispatcher(queues: ConsumeQueues, tmp_path: Path, deleted: dict[str, int] | None = None) -> Dispatcher:
    return Dispatcher(queues, CommitLog(tmp_path, 65536), deleted or {}, fill_gaps=False)


def test_entries(queues: ConsumeQueues, tmp_path: Path) -> None:
    dispatch = dispatcher(queues, tmp_path).dispatch
    dispatch(record(0, 0, b"TAGS\x01TagA\x02"))
    dispatch(record(1, 100, b"KEYS\x01a\x02"))
    queue = queues.get("TopicA", 0)
    assert queue is not None
    assert [queue.entry(0), queue.entry(1)] == [(0, 100, tags_code("TagA")), (100, 100, 0)]


@pytest.mark.parametrize(
    ("kind", "entries"),
    [
        (MessageSysFlag.TRANSACTION_NOT, 1),
        (MessageSysFlag.TRANSACTION_PREPARED, 0),
        (MessageSysFlag.TRANSACTION_COMMIT, 1),
        (MessageSysFlag.TRANSACTION_ROLLBACK, 0),
    ],
)
def test_transactions(queues: ConsumeQueues, tmp_path: Path, kind: int, entries: int) -> None:
    dispatcher(queues, tmp_path).dispatch(record(sys_flag=kind | MessageSysFlag.COMPRESSED))
    queue = queues.get("TopicA", 0)
    assert (0 if queue is None else queue.max_offset) == entries


def test_messages_of_a_deleted_topic_get_no_entries(queues: ConsumeQueues, tmp_path: Path) -> None:
    dispatch = dispatcher(queues, tmp_path, {"TopicA": 200}).dispatch
    dispatch(record(0, 0))
    dispatch(record(1, 100))
    assert queues.get("TopicA", 0) is None
    dispatch(record(0, 200))
    dispatch(record(0, 300, topic="TopicB"))
    assert [(queue.topic, queue.last_entry()) for queue in queues] == [
        ("TopicA", (200, 100, 0)),
        ("TopicB", (300, 100, 0)),
    ]


def test_a_gap_is_recorded(queues: ConsumeQueues, tmp_path: Path) -> None:
    seen = dispatcher(queues, tmp_path)
    seen.dispatch(record(0, 0))
    seen.dispatch(record(3, 1000))
    seen.dispatch(record(4, 2000))
    assert list(seen.gaps.values()) == [100]
    assert [queue.max_offset for queue in queues] == [1]


@each_row("row", DELAYS, ids=str)
def test_when_a_delayed_message_is_due(row: dict[str, int]) -> None:
    properties = b"DELAY\x01%d\x02" % row["level"]
    found = RecordSummary(0, 100, "SCHEDULE_TOPIC_XXXX", 0, 0, 0, row["store_timestamp"], properties)
    assert tags_code_of(found) == row["tags_code"]


@pytest.mark.parametrize("level", [b"0", b"-1", b"x", b""])
def test_no_delay(level: bytes) -> None:
    properties = b"DELAY\x01%b\x02TAGS\x01TagA\x02" % level
    assert tags_code_of(record(topic="SCHEDULE_TOPIC_XXXX", properties=properties)) == tags_code("TagA")


def test_a_delay_property_counts_in_the_schedule_topic_only() -> None:
    assert tags_code_of(record(properties=b"DELAY\x013\x02TAGS\x01TagA\x02")) == tags_code("TagA")


def test_a_level_above_the_highest_counts_as_the_highest() -> None:
    found = record(topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x0199\x02")
    assert tags_code_of(found) == STORED_MS + 7_200_000


def test_other_levels() -> None:
    found = record(topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x013\x02")
    assert tags_code_of(found, DelayLevels.parse("7s 3m")) == STORED_MS + 180_000


# --- keys ---


def test_records_for_the_index(queues: ConsumeQueues, tmp_path: Path) -> None:
    """Half messages are in the index, though in no queue."""
    told: list[int] = []
    dispatch = Dispatcher(
        queues,
        CommitLog(tmp_path, 65536),
        {"Deleted": 1000},
        fill_gaps=True,
        index=lambda record: told.append(record.physical_offset),
    ).dispatch
    dispatch(record(0, 0))
    dispatch(record(0, 100, sys_flag=MessageSysFlag.TRANSACTION_PREPARED))
    dispatch(record(0, 200, sys_flag=MessageSysFlag.TRANSACTION_ROLLBACK))
    dispatch(record(1, 300, sys_flag=MessageSysFlag.TRANSACTION_COMMIT))
    dispatch(record(0, 400, topic="Deleted"))
    dispatch(record(0, 500))  # an offset assigned twice: the first message stays, but a query finds both
    assert told == [0, 100, 300, 500]


# --- batches ---


@pytest.fixture
def batches(tmp_path: Path) -> Iterator[ConsumeQueues]:
    queues = ConsumeQueues(tmp_path / "consumequeue", 6000, is_batch=lambda topic: True)
    yield queues
    queues.close()


def units(queues: ConsumeQueues) -> list[BatchEntry | None]:
    queue = queues.get("TopicA", 0)
    assert isinstance(queue, BatchConsumeQueue)
    return [
        queue.batch_entry(offset)
        for offset in range(queue.max_offset)
        if queue.first_of_entry(offset) == offset
    ]


def test_batches_that_are_one_record(batches: ConsumeQueues, tmp_path: Path) -> None:
    dispatch = dispatcher(batches, tmp_path).dispatch
    dispatch(record(0, 0, b"INNER_NUM\x015\x02INNER_BASE\x010\x02TAGS\x01TagA\x02", sys_flag=BATCH))
    dispatch(record(5, 100, b"TAGS\x01TagA\x02"))
    dispatch(record(6, 200, b"INNER_NUM\x012\x02INNER_BASE\x016\x02", sys_flag=BATCH))
    code = tags_code("TagA")
    assert units(batches) == [
        BatchEntry(0, 100, code, STORED_MS, 0, 5),
        BatchEntry(100, 100, code, STORED_MS, 5, 1),
        BatchEntry(200, 100, 0, STORED_MS, 6, 2),
    ]


@pytest.mark.parametrize(
    ("properties", "messages"),
    [
        (b"INNER_NUM\x017\x02INNER_BASE\x010\x02", 7),
        (b"INNER_NUM\x017\x02", 1),
        (b"INNER_BASE\x010\x02", 1),
        (b"INNER_NUM\x010\x02INNER_BASE\x010\x02", 1),
        (b"INNER_NUM\x01-3\x02INNER_BASE\x010\x02", 1),
        (b"INNER_NUM\x01x\x02INNER_BASE\x010\x02", 1),
        (b"INNER_NUM\x0199999\x02INNER_BASE\x010\x02", 32767),
    ],
)
def test_number_of_messages_of_a_record(properties: bytes, messages: int) -> None:
    assert messages_in(record(properties=properties, sys_flag=BATCH)) == messages
    assert messages_in(record(properties=properties)) == 1  # set by a producer


def test_a_gap_between_batches(batches: ConsumeQueues, tmp_path: Path) -> None:
    seen = dispatcher(batches, tmp_path)
    seen.dispatch(record(0, 0, b"INNER_NUM\x015\x02INNER_BASE\x010\x02", sys_flag=BATCH))
    seen.dispatch(record(40_000, 1000))
    assert list(seen.gaps.values()) == [100]
    filling = Dispatcher(batches, CommitLog(tmp_path, 65536), {}, fill_gaps=True)
    filling.dispatch(record(40_000, 1000))
    assert [unit and unit.base_offset for unit in units(batches)[:1]] == [0]
    queue = batches.get("TopicA", 0)
    assert queue is not None and queue.entry(40_000) == (1000, 100, 0)
    filling.dispatch(record(1 << 40, 1100))  # more messages than the log has space for
    assert queue.max_offset == 40_001
