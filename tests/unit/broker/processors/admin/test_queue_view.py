"""Entries of a consume queue (code 321)."""

from __future__ import annotations

import pytest

from rmq_broker.clients.client import ConnectedClient
from rmq_broker.clients.consumers import ConsumerTable, Heartbeat
from rmq_broker.processors.admin import queue_view
from rmq_broker.processors.admin.queue_view import QueueViewProcessor
from rmq_broker.store.api import ExtUnit
from rmq_remoting.bodies.checks import ConsumeQueueData, QueryConsumeQueueResponseBody
from rmq_remoting.bodies.heartbeat import ConsumerData, SubscriptionData
from rmq_remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from tests.support.broker_settings import broker_settings
from tests.support.clock import START_MS
from tests.support.peers import Peer
from tests.unit.broker.filtering.parts import filter_table
from tests.unit.broker.processors.parts import FakeStore

_FIRST = 10
_ENTRIES = [(1000, 100, 5), (1100, 120, -5), (1220, 90, -(2**31) - 1)]
_UNITS: dict[int, ExtUnit] = {}


class _Store(FakeStore):
    """One queue, T/1."""

    def __init__(self) -> None:
        super().__init__()
        self.queues["T", 1] = [1, 2, 3]
        self.first_offsets["T", 1] = _FIRST

    def queue_entries(
        self, topic: str, queue_id: int, offset: int, max_count: int
    ) -> list[tuple[int, int, int]] | None:
        if (topic, queue_id) != ("T", 1):
            return None
        if offset < 0:
            return _ENTRIES[:max_count]  # negative offsets never reach the store
        index = offset - _FIRST
        return _ENTRIES[index : index + max_count] if index >= 0 else []

    def ext_unit(self, topic: str, queue_id: int, address: int) -> ExtUnit | None:
        return _UNITS.get(address)


def _answer(consumers: ConsumerTable | None = None, **fields: object) -> RemotingCommand:
    chosen = {"topic": "T", "queueId": 1, "index": _FIRST, "count": 10, **fields}
    texts = {name: str(value) for name, value in chosen.items()}
    request = RemotingCommand.request(RequestCode.QUERY_CONSUME_QUEUE, texts)
    consumers = consumers or ConsumerTable()
    filters = filter_table(consumers, broker_settings())
    for group in consumers.groups():
        filters.register(group.name, list(group.subscriptions.values()))
    return QueueViewProcessor(_Store(), consumers, filters).query(Peer().connection, request)


def _body(answer: RemotingCommand) -> QueryConsumeQueueResponseBody:
    assert answer.code == ResponseCode.SUCCESS
    return QueryConsumeQueueResponseBody.decode(answer.body)


async def test_entries_and_ends() -> None:
    body = _body(_answer(count=2))
    assert (body.min_queue_index, body.max_queue_index) == (10, 13)
    assert body.queue_data == [
        ConsumeQueueData(physical_offset=1000, physical_size=100, tags_code=5),
        ConsumeQueueData(physical_offset=1100, physical_size=120, tags_code=-5),
    ]
    assert body.filter_data is None and body.subscription_data is None


async def test_missing_extension_unit_is_reported() -> None:
    data = _body(_answer(index=12)).queue_data
    assert data is not None and len(data) == 1
    assert data[0].tags_code == -(2**31) - 1 and "extension" in (data[0].msg or "")


def _subscribed(expression: str, kind: str) -> ConsumerTable:
    consumers = ConsumerTable()
    subscription = SubscriptionData(
        topic="T",
        sub_string=expression,
        expression_type=kind,
        code_set=[] if kind == "SQL92" else [-99],
    )
    data = ConsumerData(group_name="CG", subscription_data_set=[subscription])
    consumers.register(Heartbeat(data), ConnectedClient(Peer().connection, "c1", LanguageCode.JAVA, 479, 0))
    return consumers


async def test_extension_units_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts are Apache's."""
    bit_map = bytearray(14)
    bit_map[0], bit_map[9], bit_map[13] = 5, 0x81, 64
    address = _ENTRIES[2][2]
    monkeypatch.setitem(_UNITS, address, ExtUnit(-99, START_MS + 5, bytes(bit_map)))
    for consumers, expected in (
        (ConsumerTable(), False),
        (_subscribed("A", "TAG"), True),
        (_subscribed("a > 5", "SQL92"), False),
    ):
        body = _body(_answer(consumers, index=12, consumerGroup="CG"))
        assert body.queue_data is not None
        (data,) = body.queue_data
        assert data.eval is expected and data.msg is None
        assert data.extend_data_json == (
            '{"filterBitMap":"BQAAAAAAAAAAgQAAAEA=","msgStoreTime":1700000000005,"size":34,"tagsCode":-99}'
        )
        assert data.bit_map == (
            "010000000000000000000000000000001000000100000000\n"
            "0000000000000000000000000000000000000000000000000000000000000101\n"
        )
    assert '"expression":"a > 5"' in str(body.filter_data)
    # Stored before the subscription, or without a bit map: the message may match.
    for unit in (ExtUnit(-99, START_MS, bytes(bit_map)), ExtUnit(-99, START_MS + 5, b"")):
        monkeypatch.setitem(_UNITS, address, unit)
        data = (_body(_answer(consumers, index=12, consumerGroup="CG")).queue_data or [])[0]
        assert data.eval


@pytest.mark.parametrize("index", [9, 13, 1_000_000, -1])
async def test_an_index_outside_of_the_queue(index: int) -> None:
    answer = _answer(index=index)
    assert f"nothing at {index}: it goes from 10 to 12" in (answer.remark or "")
    body = _body(answer)
    assert body.queue_data == [] and body.max_queue_index == 13


@pytest.mark.parametrize("count", [0, -1])
async def test_count_of_zero(count: int) -> None:
    assert _body(_answer(count=count)).queue_data == []


async def test_response_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_view, "MAX_ENTRIES", 2)
    assert len(_body(_answer(count=2**31 - 1)).queue_data or []) == 2


@pytest.mark.parametrize(("topic", "queue_id"), [("T", 2), ("U", 1), ("T", -1)])
async def test_unknown_queue(topic: str, queue_id: int) -> None:
    with pytest.raises(CommandError, match=f"topic {topic} has no queue {queue_id}") as refusal:
        _answer(topic=topic, queueId=queue_id)
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR


async def test_the_groups_subscription_is_shown() -> None:
    consumers = ConsumerTable()
    data = ConsumerData(
        group_name="CG", subscription_data_set=[SubscriptionData(topic="T", sub_string="A || B")]
    )
    client = ConnectedClient(Peer().connection, "c1", LanguageCode.JAVA, 479, 0)
    consumers.register(Heartbeat(data), client)
    body = _body(_answer(consumers, consumerGroup="CG"))
    assert body.subscription_data is not None and body.subscription_data.sub_string == "A || B"
    assert body.filter_data == "null"
    body = _body(_answer(consumers, consumerGroup="Other"))
    assert body.subscription_data is None
    assert "no consumer of group Other" in (body.filter_data or "")
