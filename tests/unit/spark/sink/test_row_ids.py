"""Ids of rows and unique keys of messages."""

from __future__ import annotations

from pyspark_rocketmq.sink.row_ids import TaskId, UniqueKeys
from rmq_remoting.message_ids import UniqueKeyGenerator, parse_unique_key
from tests.unit.spark.sink.samples import NOW_MS, TASK


def test_row_ids_contain_query_batch_partition_and_row() -> None:
    assert TASK.rows(8, 3).to_pylist() == [b"query:7:3:8", b"query:7:3:9", b"query:7:3:10"]
    assert TASK.row(8) == "query:7:3:8"
    assert TaskId("q", "0", 0).rows(0, 0).to_pylist() == []


def test_unique_keys_have_the_sdk_format_and_do_not_repeat() -> None:
    keys = UniqueKeys(UniqueKeyGenerator("10.0.0.1", 4242, 7, lambda: NOW_MS))
    made = [key.decode() for count in (3, 0, 70, 5) for key in keys.take(count).to_pylist()]
    assert len(set(made)) == 78
    parsed = [parse_unique_key(key) for key in made]
    assert [key.counter for key in parsed] == list(range(78))
    assert {(key.ip, key.process_id, key.instance_hash) for key in parsed} == {("10.0.0.1", 4242, 7)}
    assert parsed[0].created_at_ms(NOW_MS + 1) == NOW_MS


def test_key_counter_wraps_around() -> None:
    keys = UniqueKeys(UniqueKeyGenerator("10.0.0.1", 1, 2, lambda: NOW_MS))
    keys.take(65_535)
    ends = [key[-4:] for key in keys.take(3).to_pylist()]
    assert ends == [b"FFFF", b"0000", b"0001"]
