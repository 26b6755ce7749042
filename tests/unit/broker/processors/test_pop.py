"""Held pops and notifications: what wakes them, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rmq_remoting.answers import Answer, Result
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.pop_queries import NotificationResponseHeader
from tests.support.local_broker import LocalBroker
from tests.support.peers import Peer
from tests.support.pop_requests import Popped, ack, notify, pop, popped
from tests.support.waiting import loop_passes
from tests.unit.broker.processors.parts import answer_of


class _Broker(LocalBroker):
    """A broker with a topic of one queue. A read by tags scans 40 entries."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, popFromRetryProbability=0, maxFilterMessageSize=40)
        self.topics.update(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
        self.groups.update(SubscriptionGroupConfig(group_name="CG"))

    def ask(self, request: RemotingCommand) -> Result:
        processors = self.processors.pops
        by_code = {
            RequestCode.POP_MESSAGE: processors.pop.pop,
            RequestCode.NOTIFICATION: processors.notification.notify,
            RequestCode.ACK_MESSAGE: processors.ack.ack,
        }
        return by_code[RequestCode(request.code)](Peer().connection, request)

    def hold(self, make: Callable[..., RemotingCommand], **arguments: object) -> asyncio.Future[Answer]:
        """Ask for messages that are not there."""
        held = self.ask(make("T", poll_ms=20_000, born_ms=self.clock(), **arguments))
        assert isinstance(held, asyncio.Future)
        return held


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[_Broker]:
    broker = _Broker(tmp_path)
    yield broker
    broker.close()


async def _popped(held: asyncio.Future[Answer]) -> list[Popped]:
    assert held.done(), "the pop still waits"
    return popped(await answer_of(held))


async def test_a_message_that_a_pop_leaves_wakes_the_next_one(broker: _Broker) -> None:
    held = [broker.hold(pop, count=1) for _ in range(3)]
    broker.put(3)
    await loop_passes(10)
    assert [[item.body for item in await _popped(one)] for one in held] == [[b"0"], [b"1"], [b"2"]]


async def test_a_pop_continues_behind_messages_that_its_filter_rejects(broker: _Broker) -> None:
    held = broker.hold(pop, count=1, expression="b")
    broker.put(100, tag="a")
    broker.put(1, tag="b")
    await loop_passes(100)
    assert [item.body for item in await _popped(held)] == [b"100"]


@pytest.mark.parametrize("queue_id", [0, -1])
@pytest.mark.parametrize("make", [pop, notify])
async def test_the_acknowledgement_of_a_message_wakes_ordered_requests(
    broker: _Broker, make: Callable[..., RemotingCommand], queue_id: int
) -> None:
    broker.put(2)
    (first,) = popped(await answer_of(broker.ask(pop("T", count=1, order=True))))
    held = broker.hold(make, queue_id=queue_id, order=True)
    await answer_of(broker.ask(ack(first)))
    await loop_passes(10)
    if make is pop:
        assert [item.body for item in await _popped(held)] == [b"1"]
    else:
        assert held.done()
        assert NotificationResponseHeader.decode((await answer_of(held)).ext_fields).has_msg
