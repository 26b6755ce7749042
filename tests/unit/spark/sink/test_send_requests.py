"""Grouping of encoded rows into requests: their rows, order and targets."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.sink.send_requests import SendRequest, send_requests
from rmq_client import CompressionType, MessageQueue, by_key_hash
from rmq_remoting.compression import decompress
from rmq_remoting.message import Message
from tests.unit.spark.sink.samples import QUEUES, encode, messages, rows, settings

_INT = pa.int32()


def _send_requests(batch: pa.RecordBatch, queues: Any = None, **changes: Any) -> list[SendRequest]:
    known = {"T": QUEUES} if queues is None else queues
    return send_requests(encode(batch, **changes), known, settings(**changes))


def _bodies(made: list[SendRequest]) -> list[list[bytes]]:
    return [[body for body, _ in messages(request)] for request in made]


def _numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_rows_of_one_topic_are_batched_by_count() -> None:
    made = _send_requests(rows(body=_numbered(7)), batch_rows=3)
    assert _bodies(made) == [[b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6"]]
    assert all(request.queue is None and request.topic == "T" and request.outgoing.batch for request in made)
    assert [request.rows.tolist() for request in made] == [[0, 1, 2], [3, 4, 5], [6]]


def test_batches_are_bounded_by_bytes() -> None:
    bodies = [b"x" * 400, b"y" * 400, b"z" * 400]
    made = _send_requests(rows(body=bodies), batch_bytes=1100)
    assert _bodies(made) == [bodies[:2], bodies[2:]]
    assert all(len(request.outgoing.body) <= 1100 for request in made)


def test_rejected_rows_are_left_out() -> None:
    made = _send_requests(rows(body=[None, b"1", b"", b"3"]))
    assert _bodies(made) == [[b"1", b"3"]]
    assert made[0].rows.tolist() == [1, 3]
    assert _send_requests(rows(body=pa.array([None], pa.binary()))) == []


def test_batches_have_one_topic_each() -> None:
    made = _send_requests(rows(body=_numbered(4), topic=["T", "U", "T", "U"]), topic=None)
    assert [(request.topic, _bodies([request])[0]) for request in made] == [
        ("T", [b"0", b"2"]),
        ("U", [b"1", b"3"]),
    ]


def test_sharding_key_selects_the_same_queue_as_the_sdk() -> None:
    keys = ["a", "b", None, "c", "a"]
    made = _send_requests(rows(body=_numbered(5), shardingKey=keys))
    found = {body: request.queue for request in made for body, _ in messages(request)}
    for number, key in enumerate(keys):
        expected = None if key is None else by_key_hash(QUEUES, Message("T", b""), key)
        assert found[b"%d" % number] == expected


def test_queue_id_selects_the_queue() -> None:
    made = _send_requests(rows(body=_numbered(4), queueId=pa.array([2, None, 0, 2], _INT)))
    found = {tuple(_bodies([request])[0]): request.queue for request in made}
    assert found == {(b"1",): None, (b"2",): QUEUES[0], (b"0", b"3"): QUEUES[2]}


def test_rows_for_missing_queues_are_rejected() -> None:
    encoded = encode(rows(body=_numbered(3), queueId=pa.array([1, 4, -1], _INT)))
    made = send_requests(encoded, {"T": QUEUES}, settings())
    assert _bodies(made) == [[b"0"]]
    assert "not a writable queue of topic T" in encoded.rejected.reasons[1]
    assert "below 0" in encoded.rejected.reasons[2]


def test_queue_id_on_two_brokers_needs_a_broker_name() -> None:
    queues = (MessageQueue("T", "a", 0), MessageQueue("T", "b", 0), MessageQueue("T", "b", 1))
    encoded = encode(
        rows(body=_numbered(4), queueId=pa.array([0, 0, 1, 1], _INT), brokerName=["b", None, None, "a"])
    )
    made = send_requests(encoded, {"T": queues}, settings())
    assert {request.queue: _bodies([request])[0] for request in made} == {
        queues[1]: [b"0"],
        queues[2]: [b"2"],
    }
    assert "on the brokers a, b: give the column brokerName" in encoded.rejected.reasons[1]
    assert "on broker 'a'" in encoded.rejected.reasons[3]


def test_queue_of_an_absent_broker_is_not_rejected() -> None:
    brokers = ["broker-b", "broker-a", "", None]
    batch = rows(body=_numbered(4), brokerName=brokers, queueId=pa.array([0, 7, 7, 7], _INT))
    encoded = encode(batch)
    made = send_requests(encoded, {"T": QUEUES}, settings())
    assert [request.queue for request in made] == [MessageQueue("T", "broker-b", 0)]
    assert _bodies(made) == [[b"0"]]
    assert sorted(encoded.rejected.reasons) == [1, 2, 3]


def test_unbatched_row_keeps_its_order_within_its_queue() -> None:
    levels = pa.array([0, 0, 1, 0], _INT)
    ids = pa.array([1, 1, 1, 1], _INT)
    made = _send_requests(rows(body=_numbered(4), queueId=ids, delayTimeLevel=levels))
    assert _bodies(made) == [[b"0", b"1"], [b"2"], [b"3"]]
    assert [request.outgoing.batch for request in made] == [True, False, True]
    assert messages(made[1])[0][1]["DELAY"] == "1"


def test_unbatched_row_without_a_queue_does_not_split_batches() -> None:
    levels = pa.array([0, 1, 0, 1, 0], _INT)
    assert _bodies(_send_requests(rows(body=_numbered(5), delayTimeLevel=levels))) == [
        [b"0", b"2", b"4"],
        [b"1"],
        [b"3"],
    ]


def test_large_bodies_are_compressed_if_that_makes_them_smaller() -> None:
    noise = bytes(range(256))
    batch = rows(body=[b"x" * 5000, noise, b"small"])
    made = _send_requests(batch, compression=CompressionType.ZSTD, compress_from_bytes=200)
    found = {request.rows.tolist()[0]: request.outgoing for request in made}
    assert decompress(found[0].body, CompressionType.ZSTD) == b"x" * 5000
    assert found[0].sys_flag == CompressionType.ZSTD.sys_flag
    assert (found[1].body, found[1].sys_flag) == (noise, 0)
    assert found[2].batch


def test_splitting_a_batch_in_halves() -> None:
    (request,) = _send_requests(rows(body=_numbered(5)))
    first, second = request.halves()
    assert _bodies([first, second]) == [[b"0", b"1"], [b"2", b"3", b"4"]]
    assert second.rows.tolist() == [2, 3, 4]
    assert _bodies(list(second.halves())) == [[b"2"], [b"3", b"4"]]


_ROWS = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"bb" * 40, b"", None]),
        st.sampled_from(["T", "U", None]),
        st.one_of(st.none(), st.integers(0, 5)),
        st.integers(0, 1),
    ),
    max_size=40,
)


@given(_ROWS, st.integers(1, 5))
def test_every_row_is_rejected_or_sent_once_and_in_order_per_queue(
    made_up: list[tuple[bytes | None, str | None, int | None, int]], batch_rows: int
) -> None:
    batch = rows(
        body=pa.array([row[0] for row in made_up], pa.binary()),
        topic=pa.array([row[1] for row in made_up], pa.string()),
        queueId=pa.array([row[2] for row in made_up], _INT),
        delayTimeLevel=pa.array([row[3] for row in made_up], _INT),
    )
    of_u = tuple(MessageQueue("U", "broker-a", queue_id) for queue_id in range(2))
    encoded = encode(batch, topic=None)
    made = send_requests(encoded, {"T": QUEUES, "U": of_u}, settings(batch_rows=batch_rows))
    sent = [row for request in made for row in request.rows.tolist()]
    assert sorted([*sent, *encoded.rejected.reasons]) == list(range(len(made_up)))
    for request in made:
        assert len(request.rows) <= batch_rows
        assert [body for body, _ in messages(request)] == [made_up[row][0] for row in request.rows]
        assert {made_up[row][1] for row in request.rows} == {request.topic}
        wanted = {made_up[row][2] for row in request.rows}
        assert wanted == {None if request.queue is None else request.queue.queue_id}
    for queue in (*QUEUES, *of_u):
        in_queue = [row for request in made if request.queue == queue for row in request.rows]
        assert in_queue == sorted(in_queue)
