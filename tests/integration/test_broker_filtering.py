"""Filtering by properties over the wire: subscriptions with SQL92, in heartbeats and in pulls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.clients.subscription import Subscription
from rmq_broker.clock import now_ms
from rmq_broker.store.api import is_ext_address
from rmq_broker.store.reading.property_filter import may_match
from rmq_broker.store_tool.main import main as verify
from rmq_remoting.bodies.checks import CheckClientRequestBody
from rmq_remoting.bodies.heartbeat import SubscriptionData
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from tests.support.broker_requests import (
    ask_among_notifications,
    create_topic,
    heartbeat,
    offsets,
    pull,
    pulled,
    request,
    send,
    sent,
)
from tests.support.brokers import RunningBroker, running_broker
from tests.support.raw_client import RawClient
from tests.support.waiting import until

_LONG_MS = 20_000
_KEYS = {"enablePropertyFilter": "true"}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path, **_KEYS) as running:
        yield running


@pytest.fixture
async def client(broker: RunningBroker) -> AsyncIterator[RawClient]:
    async with broker.client() as connected:
        await connected.ask(create_topic("T"))
        yield connected


async def _subscribe(member: RawClient, expression: str, version: int, topic: str = "T") -> None:
    beat = heartbeat("c1", "CG", {topic: expression}, sub_version=version, expression_type="SQL92")
    answer, _ = await ask_among_notifications(member, beat)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def _send(client: RawClient, *values: int, topic: str = "T") -> None:
    for value in values:
        sent(await client.ask(send(topic, b"%d" % value, properties={"a": str(value), "KEYS": "k"})))


def _subscribed(offset: int = 0, version: int = 0, suspend_ms: int | None = None) -> RemotingCommand:
    return pull("T", offset=offset, subscription=None, sub_version=version, suspend_ms=suspend_ms)


def _bodies(answer: RemotingCommand) -> list[int]:
    return [int(message.body) for message in pulled(answer)]


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
async def test_an_expression_in_the_pull(client: RawClient, code: int) -> None:
    await _send(client, *range(10))

    def asking(expression: str, kind: str = "SQL92") -> RemotingCommand:
        return pull("T", subscription=expression, expression_type=kind, code=code)

    answer = await client.ask(asking("a >= 3 AND a < 5 OR a = 9"))
    assert (_bodies(answer), offsets(answer)) == ([3, 4, 9], (10, 0, 10))
    nothing = await client.ask(asking("a > 100"))
    assert (nothing.code, offsets(nothing)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, (10, 0, 10))
    for expression, kind, problem in (
        ("a >= 3 AND", "SQL92", "character 11"),
        ("a >= 3)", "SQL92", "character 7"),
        ("a >= 3", "SQL93", "SQL93 are not known"),
    ):
        refused = await client.ask(asking(expression, kind))
        assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert problem in str(refused.remark)


async def test_an_expression_in_the_heartbeat(client: RawClient, member: RawClient) -> None:
    await _send(client, *range(10))
    await _subscribe(member, "a > 7", 10)
    assert _bodies(await client.ask(_subscribed(version=10))) == [8, 9]
    # The newer one counts, the older one does not.
    await _subscribe(member, "a = 2", 20)
    await _subscribe(member, "a = 3", 15)
    assert _bodies(await client.ask(_subscribed(version=20))) == [2]
    late = await client.ask(_subscribed(version=21))
    assert late.code == ResponseCode.SUBSCRIPTION_NOT_LATEST


async def test_a_wrong_expression_in_the_heartbeat_is_told_to_who_pulls(
    client: RawClient, member: RawClient
) -> None:
    await _send(client, 1)
    await _subscribe(member, "a LIKE 'x%'", 10)
    refused = await client.ask(_subscribed(version=10))
    assert refused.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert "character 3" in str(refused.remark) and "CONTAINS" in str(refused.remark)
    await _subscribe(member, "a = 1", 11)
    assert _bodies(await client.ask(_subscribed(version=11))) == [1]


async def test_lenient_as_apaches_broker(broker: RunningBroker, client: RawClient) -> None:
    await _send(client, 1, 7)
    broker.change(filterLenient="true")
    answer = await client.ask(pull("T", subscription="a > 5) ignored", expression_type="SQL92"))
    assert _bodies(answer) == [7]


async def test_a_held_pull_waits_for_a_message_that_matches(
    broker: RunningBroker, client: RawClient, member: RawClient
) -> None:
    held = broker.held_pulls
    await _subscribe(member, "a > 5", 10)
    async with broker.client() as consumer:
        consumer.send(_subscribed(version=10, suspend_ms=_LONG_MS))
        await until(lambda: held.count == 1)
        await _send(client, 1, 2, 3)
        assert held.count == 1
        await _send(client, 7)
        answer = await consumer.receive()
        assert (_bodies(answer), offsets(answer)[0]) == ([7], 4)
        # What the group changes its subscription to counts for pulls that are held, too.
        consumer.send(_subscribed(offset=4, version=10, suspend_ms=_LONG_MS))
        await until(lambda: held.count == 1)
        await _subscribe(member, "a = 1", 20)
        await _send(client, 7, 1)
        assert _bodies(await consumer.receive()) == [1]


async def test_a_backlog_behind_a_held_pull_is_looked_through(
    broker: RunningBroker, client: RawClient
) -> None:
    """Nothing matches for longer than one look goes: the client is told where to go on."""
    async with broker.client() as consumer:
        asked = pull("T", subscription="a = 7", expression_type="SQL92", suspend_ms=_LONG_MS)
        consumer.send(asked)
        await until(lambda: broker.held_pulls.count == 1)
        client.send(*[send("T", b"0", properties={"a": "0"}) for _ in range(2000)])
        for _ in range(2000):
            sent(await client.receive())
        await _send(client, 7)
        offset = 0
        while (answer := await consumer.receive()).code != ResponseCode.SUCCESS:
            assert offsets(answer)[0] > offset
            offset = offsets(answer)[0]
            consumer.send(
                pull("T", offset=offset, subscription="a = 7", expression_type="SQL92", suspend_ms=_LONG_MS)
            )
        assert (_bodies(answer), offsets(answer)[0]) == ([7], 2001)


async def test_a_client_asks_whether_its_expression_works(client: RawClient) -> None:
    def asking(expression: str) -> RemotingCommand:
        data = SubscriptionData(topic="T", sub_string=expression, expression_type="SQL92")
        body = CheckClientRequestBody(client_id="c1", group="CG", subscription_data=data)
        return request(RequestCode.CHECK_CLIENT_CONFIG, body.encode())

    assert (await client.ask(asking("a > 5 AND b IN ('x', 'y')"))).code == ResponseCode.SUCCESS
    refused = await client.ask(asking("a > 5 AND b IN (1, 2)"))
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "character 17" in str(refused.remark)


async def test_messages_that_come_again(broker: RunningBroker, client: RawClient, member: RawClient) -> None:
    await client.ask(create_topic("%RETRY%CG", 1))
    await _subscribe(member, "a > 5", 10)
    retried = pull("%RETRY%CG", subscription="*")
    for value in (3, 7):
        properties = {"a": str(value), "RETRY_TOPIC": "T"}
        sent(await client.ask(send("%RETRY%CG", b"%d" % value, properties=properties)))
    assert _bodies(await client.ask(retried)) == [3, 7]
    broker.change(filterSupportRetry="true")
    assert _bodies(await client.ask(retried)) == [7]


async def test_filters_are_written_down(tmp_path: Path) -> None:
    file = tmp_path / "store" / "config" / "consumerFilter.json"

    def stored() -> dict[str, object]:
        topics = json.loads(file.read_text())["filterDataByTopic"]
        return {} if not topics else topics["T"]["groupFilterData"]["CG"]

    async with running_broker(tmp_path, **_KEYS) as broker, broker.client() as client:
        await client.ask(create_topic("T"))
        async with broker.client() as member:
            await _subscribe(member, "a > 5", 10)
            await until(lambda: file.exists() and bool(stored()))
            assert stored()["dead"] is False
        await until(lambda: bool(stored()["dead"]))
    before = stored()
    async with running_broker(tmp_path, **_KEYS) as broker:
        known = broker.services.filters.table.find("T", "CG")
        assert known is not None and known.is_dead
        async with broker.client() as member:
            await _subscribe(member, "a > 5", 10)
            assert not known.is_dead
    assert (stored()["expression"], stored()["bornTime"]) == ("a > 5", before["bornTime"])


async def test_bit_maps_are_written_and_what_is_old_is_found_by_them(tmp_path: Path) -> None:
    keys = {**_KEYS, "enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"}
    async with running_broker(tmp_path, **keys) as broker, broker.client() as client:
        await client.ask(create_topic("T"))
        await _send(client, 7, 8)  # before anybody subscribes
        async with broker.client() as member:
            await _subscribe(member, "a > 5", 10)
            subscribed_ms = now_ms()
            await until(lambda: now_ms() > subscribed_ms)  # nobody vouches for messages of that millisecond
            await _send(client, *range(10))
            assert _bodies(await client.ask(_subscribed(version=10))) == [7, 8, 6, 7, 8, 9]
    files = list((tmp_path / "store" / "consumequeue_ext" / "T" / "0").iterdir())
    assert [file.stat().st_size for file in files] == [48 << 20]
    async with running_broker(tmp_path, **keys) as broker, broker.client() as client:
        queue = broker.store.queues.get("T", 0)
        assert queue is not None
        entries = queue.entries(0, 100)
        assert [is_ext_address(entry[2]) for entry in entries] == [False] * 2 + [True] * 10
        async with broker.client() as member:
            await _subscribe(member, "a > 5", 10)
            wanted = broker.services.filters.filters.of_group(
                "CG", Subscription("T", "a > 5", "SQL92", 10), 10
            )
            assert wanted.properties is not None
            looked_at = [may_match(queue, entry[2], wanted.properties) for entry in entries]
            assert looked_at == [True] * 2 + [False] * 6 + [True] * 4
            await _send(client, 1, 6)
            assert _bodies(await client.ask(_subscribed(version=10))) == [7, 8, 6, 7, 8, 9, 6]
    assert verify(["verify", str(tmp_path / "store"), "--strict"]) == 0
