"""A store directory with popped messages of this project's broker, taken over by Apache's 5.3.3.

(The other direction: `tests/unit/broker/pop/test_recovery.py`, with a directory that Apache's broker wrote.)
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.message import MessageExt
from tests.support.apache import ApacheBroker
from tests.support.broker_requests import create_topic, pull, pulled, request, send, sent, succeeded
from tests.support.golden_store import SETTINGS
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.pop_requests import Popped, ack, pop, popped
from tests.support.raw_client import RawClient, raw_client
from tests.support.toolchain import JavaProgram

pytestmark = pytest.mark.java

_RETRY = "%RETRY%CG_T"
_SOON_MS = 1000
_LATER_MS = 600_000
_SETTINGS = {**SETTINGS, "brokerName": "broker-a"}
_POLL_SECONDS = 0.2


@pytest.mark.timeout(90)
async def test_apaches_broker_takes_over_popped_messages(apache_program: JavaProgram, tmp_path: Path) -> None:
    async with OwnNamesrv() as namesrv:
        ours = OwnBroker(namesrv.address, home=tmp_path, settings=_SETTINGS)
        await ours.start()
        async with raw_client(ours.port) as client:
            await _fill(client)
            # One of the first three is acknowledged, two are due soon. All but one of the next are due later.
            soon = popped(await client.ask(pop("T", count=3, invisible_ms=_SOON_MS)))
            await _ack(client, soon[1])
            later = popped(await client.ask(pop("T", count=3, invisible_ms=_LATER_MS)))
            await _ack(client, later[0])
            await _ack(client, later[2])
            came_back = await _until_there(client, 2)
            await _reset(client, "CG2", 3)
        await ours.stop()
        assert [message.body for message in came_back] == [b"0", b"2"]

        apaches = ApacheBroker(apache_program, namesrv.address, home=tmp_path, settings=_SETTINGS)
        await apaches.start()
        async with raw_client(apaches.port) as client:
            # The same file has a pending reset, which Apache's broker ignores.
            place = {"consumerGroup": "CG2", "topic": "T", "queueId": 0}
            committed = succeeded(await client.ask(request(RequestCode.QUERY_CONSUMER_OFFSET, **place)))
            assert committed.ext_fields["offset"] == "3"
            answer = await client.ask(pop("T", count=32, queue_id=0, invisible_ms=_SOON_MS))
            items = popped(answer)
            new = [item.body for item in items if item.receipt.kind == "0"]
            assert new == [b"6", b"7"], "a popped message was delivered again"
            for item in items:
                if item.body != b"7":
                    await _ack(client, item)
            # It redelivers only the messages that it popped itself.
            came_back = await _until_there(client, 3)
        apaches.kill()
        assert [message.body for message in came_back] == [b"0", b"2", b"7"]


async def _fill(client: RawClient) -> None:
    assert (await client.ask(create_topic("T", 1))).code == ResponseCode.SUCCESS
    for number in range(8):
        sent(await client.ask(send("T", b"%d" % number)))


async def _reset(client: RawClient, group: str, offset: int) -> None:
    """Reset a group that has pulled only once."""
    pulled(await client.ask(pull("T", group)))
    where = {"topic": "T", "group": group, "queueId": 0, "offset": offset, "timestamp": 0, "isForce": True}
    succeeded(await client.ask(request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **where)))


async def _ack(client: RawClient, item: Popped) -> None:
    answer = await client.ask(ack(item))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def _until_there(client: RawClient, count: int) -> list[MessageExt]:
    """Wait for `count` messages in the retry topic, and return them."""
    async with asyncio.timeout(40):
        while True:
            answer = await client.ask(pull(_RETRY))
            if answer.code == ResponseCode.SUCCESS and len(pulled(answer)) >= count:
                return pulled(answer)
            await asyncio.sleep(_POLL_SECONDS)
