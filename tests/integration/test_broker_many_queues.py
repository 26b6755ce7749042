"""A topic with thousands of queues: requests that look into all of them delay no other connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from tests.support.broker_requests import create_topic, heartbeat, request, send, sent
from tests.support.brokers import RunningBroker, running_broker
from tests.support.pop_requests import notify, peek, pop, query_assignment

_QUEUES = 8192


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path, maxTopicQueueNums=_QUEUES) as started, started.client() as client:
        assert (await client.ask(create_topic("T", _QUEUES))).code == ResponseCode.SUCCESS
        assert (await client.ask(create_topic("U"))).code == ResponseCode.SUCCESS
        await client.ask(heartbeat("CG", "T"))
        yield started


@pytest.mark.parametrize(
    "walk",
    [
        pop("T"),
        pop("T", order=True),
        notify("T"),
        peek("T"),
        query_assignment("T"),
        request(Code.INVOKE_BROKER_TO_RESET_OFFSET, topic="T", group="CG", timestamp=-1, isForce="true"),
    ],
    ids=lambda command: Code(command.code).name.lower(),
)
async def test_other_connections_are_served_meanwhile(broker: RunningBroker, walk: RemotingCommand) -> None:
    async with broker.client() as walker, broker.client() as producer:
        sent(await producer.ask(send("U", queue_id=0)))
        walker.send(walk)
        answered = asyncio.create_task(walker.receive())
        sent(await producer.ask(send("U", queue_id=0)))
        sent(await producer.ask(send("U", queue_id=0)))
        assert not answered.done(), "the sends were answered first"
        assert (await answered).opaque == walk.opaque


async def test_as_many_pops_as_one_peer_can_have_delay_no_send(broker: RunningBroker) -> None:
    async with broker.client() as greedy, broker.client() as producer:
        greedy.send(*[pop("T", group=f"CG{number}") for number in range(100)])
        answered = asyncio.create_task(greedy.receive())
        for _ in range(3):
            sent(await producer.ask(send("U", queue_id=0)))
        assert answered.cancel(), "no pop was answered yet"
