"""Encoded rows → parcels: which rows go together, in which order, and where to."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.sink.parcels import Parcel, parcels
from rmq_client import CompressionType, MessageQueue, by_key_hash
from rmq_remoting.compression import decompress
from rmq_remoting.message import Message
from tests.unit.spark.sink.parts import QUEUES, encode, messages, rows, settings

_INT = pa.int32()


def _parcels(batch: pa.RecordBatch, queues: Any = None, **changes: Any) -> list[Parcel]:
    known = {"T": QUEUES} if queues is None else queues
    return parcels(encode(batch, **changes), known, settings(**changes))


def _bodies(made: list[Parcel]) -> list[list[bytes]]:
    return [[body for body, _ in messages(parcel)] for parcel in made]


def _numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_rows_of_one_topic_go_in_batches_of_the_size_asked_for() -> None:
    made = _parcels(rows(body=_numbered(7)), batch_rows=3)
    assert _bodies(made) == [[b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6"]]
    assert all(parcel.queue is None and parcel.topic == "T" and parcel.outgoing.batch for parcel in made)
    assert [parcel.rows.tolist() for parcel in made] == [[0, 1, 2], [3, 4, 5], [6]]


def test_bytes_bound_a_batch_too() -> None:
    bodies = [b"x" * 400, b"y" * 400, b"z" * 400]
    made = _parcels(rows(body=bodies), batch_bytes=1100)
    assert _bodies(made) == [bodies[:2], bodies[2:]]
    assert all(len(parcel.outgoing.body) <= 1100 for parcel in made)


def test_refused_rows_are_left_out() -> None:
    made = _parcels(rows(body=[None, b"1", b"", b"3"]))
    assert _bodies(made) == [[b"1", b"3"]]
    assert made[0].rows.tolist() == [1, 3]
    assert _parcels(rows(body=pa.array([None], pa.binary()))) == []


def test_topics_do_not_mix() -> None:
    made = _parcels(rows(body=_numbered(4), topic=["T", "U", "T", "U"]), topic=None)
    assert [(parcel.topic, _bodies([parcel])[0]) for parcel in made] == [
        ("T", [b"0", b"2"]),
        ("U", [b"1", b"3"]),
    ]


def test_rows_with_a_sharding_key_go_where_the_sdk_would_send_them() -> None:
    keys = ["a", "b", None, "c", "a"]
    made = _parcels(rows(body=_numbered(5), shardingKey=keys))
    found = {body: parcel.queue for parcel in made for body, _ in messages(parcel)}
    for number, key in enumerate(keys):
        expected = None if key is None else by_key_hash(QUEUES, Message("T", b""), key)
        assert found[b"%d" % number] == expected


def test_rows_with_a_queue_go_there() -> None:
    made = _parcels(rows(body=_numbered(4), queueId=pa.array([2, None, 0, 2], _INT)))
    found = {tuple(_bodies([parcel])[0]): parcel.queue for parcel in made}
    assert found == {(b"1",): None, (b"2",): QUEUES[0], (b"0", b"3"): QUEUES[2]}


def test_queues_that_are_not_there_refuse_their_rows() -> None:
    encoded = encode(rows(body=_numbered(3), queueId=pa.array([1, 4, -1], _INT)))
    made = parcels(encoded, {"T": QUEUES}, settings())
    assert _bodies(made) == [[b"0"]]
    assert "no queue of topic T" in encoded.refusals.reasons[1]
    assert "below 0" in encoded.refusals.reasons[2]


def test_on_two_brokers_a_queue_id_needs_its_broker() -> None:
    queues = (MessageQueue("T", "a", 0), MessageQueue("T", "b", 0), MessageQueue("T", "b", 1))
    encoded = encode(
        rows(body=_numbered(4), queueId=pa.array([0, 0, 1, 1], _INT), brokerName=["b", None, None, "a"])
    )
    made = parcels(encoded, {"T": queues}, settings())
    assert {parcel.queue: _bodies([parcel])[0] for parcel in made} == {queues[1]: [b"0"], queues[2]: [b"2"]}
    assert "on the brokers a, b: give the column brokerName" in encoded.refusals.reasons[1]
    assert "on broker 'a'" in encoded.refusals.reasons[3]


def test_a_queue_of_a_broker_that_is_away_is_no_reason_to_refuse() -> None:
    brokers = ["broker-b", "broker-a", "", None]
    batch = rows(body=_numbered(4), brokerName=brokers, queueId=pa.array([0, 7, 7, 7], _INT))
    encoded = encode(batch)
    made = parcels(encoded, {"T": QUEUES}, settings())
    assert [parcel.queue for parcel in made] == [MessageQueue("T", "broker-b", 0)]
    assert _bodies(made) == [[b"0"]]
    assert sorted(encoded.refusals.reasons) == [1, 2, 3]


def test_what_goes_alone_keeps_its_place_among_rows_of_its_queue() -> None:
    levels = pa.array([0, 0, 1, 0], _INT)
    ids = pa.array([1, 1, 1, 1], _INT)
    made = _parcels(rows(body=_numbered(4), queueId=ids, delayTimeLevel=levels))
    assert _bodies(made) == [[b"0", b"1"], [b"2"], [b"3"]]
    assert [parcel.outgoing.batch for parcel in made] == [True, False, True]
    assert messages(made[1])[0][1]["DELAY"] == "1"


def test_what_goes_alone_and_anywhere_does_not_cut_batches() -> None:
    levels = pa.array([0, 1, 0, 1, 0], _INT)
    assert _bodies(_parcels(rows(body=_numbered(5), delayTimeLevel=levels))) == [
        [b"0", b"2", b"4"],
        [b"1"],
        [b"3"],
    ]


def test_large_bodies_are_compressed_where_that_helps() -> None:
    noise = bytes(range(256))
    batch = rows(body=[b"x" * 5000, noise, b"small"])
    made = _parcels(batch, compression=CompressionType.LZ4, compress_from_bytes=200)
    found = {parcel.rows.tolist()[0]: parcel.outgoing for parcel in made}
    assert decompress(found[0].body, CompressionType.LZ4) == b"x" * 5000
    assert found[0].sys_flag == CompressionType.LZ4.sys_flag
    assert (found[1].body, found[1].sys_flag) == (noise, 0)
    assert found[2].batch


def test_halves_of_a_batch() -> None:
    (parcel,) = _parcels(rows(body=_numbered(5)))
    first, second = parcel.halves()
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
def test_every_row_is_refused_or_goes_once_and_rows_of_a_queue_keep_their_order(
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
    made = parcels(encoded, {"T": QUEUES, "U": of_u}, settings(batch_rows=batch_rows))
    sent = [row for parcel in made for row in parcel.rows.tolist()]
    assert sorted([*sent, *encoded.refusals.reasons]) == list(range(len(made_up)))
    for parcel in made:
        assert len(parcel.rows) <= batch_rows
        assert [body for body, _ in messages(parcel)] == [made_up[row][0] for row in parcel.rows]
        assert {made_up[row][1] for row in parcel.rows} == {parcel.topic}
        wanted = {made_up[row][2] for row in parcel.rows}
        assert wanted == {None if parcel.queue is None else parcel.queue.queue_id}
    for queue in (*QUEUES, *of_u):
        in_queue = [row for parcel in made if parcel.queue == queue for row in parcel.rows]
        assert in_queue == sorted(in_queue)
