"""Requests that look into every queue of a topic with thousands of them run in slices of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rmq_broker.delivery.turns import ITEMS_PER_SLICE
from rmq_broker.pop.check_point import QueueKey
from rmq_remoting.answers import Answer, Result
from rmq_remoting.bodies.assignment import (
    MessageQueueAssignment,
    QueryAssignmentResponseBody,
)
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.offsets import ResetOffsetBody
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.pop import PopMessageResponseHeader
from rmq_remoting.headers.pop_queries import NotificationResponseHeader
from rmq_remoting.message_queue import MessageQueue
from tests.support.local_broker import LocalBroker
from tests.support.peers import Peer
from tests.support.pop_requests import notify, peek, pop, query_assignment

_QUEUES = 20 * ITEMS_PER_SLICE
_LONG_MS = 20_000


class _FirstQueueFirst:
    """Stands for the random start of a walk."""

    def randrange(self, end: int) -> int:
        return end - 1 if end == 5 else 0  # 5: whether a peek begins with the retry topic


class _Broker(LocalBroker):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, maxTopicQueueNums=_QUEUES, popFromRetryProbability=0)
        self.topics.update(TopicConfig(topic_name="T", read_queue_nums=_QUEUES, write_queue_nums=_QUEUES))
        self.groups.update(SubscriptionGroupConfig(group_name="CG"))
        self.services.pops.popping.chance = _FirstQueueFirst()  # type: ignore[assignment]
        self.processors.pops.peek.peeking.chance = _FirstQueueFirst()  # type: ignore[assignment]
        self.peer = Peer()

    def ask(self, request: RemotingCommand) -> asyncio.Future[Answer]:
        """Run a request that cannot be answered at once."""
        by_code = {
            RequestCode.POP_MESSAGE: self.processors.pops.pop.pop,
            RequestCode.NOTIFICATION: self.processors.pops.notification.notify,
            RequestCode.PEEK_MESSAGE: self.processors.pops.peek.peek,
            RequestCode.QUERY_ASSIGNMENT: self.processors.pops.assignment.query,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.processors.admin.groups.offset_reset.reset,
        }
        result: Result = by_code[RequestCode(request.code)](self.peer.connection, request)
        assert isinstance(result, asyncio.Future)
        return result

    async def answer(self, future: asyncio.Future[Answer]) -> RemotingCommand:
        answer = await asyncio.wait_for(future, 10)
        assert isinstance(answer, RemotingCommand)
        return answer


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[_Broker]:
    made = _Broker(tmp_path)
    yield made
    made.close()


def _reset() -> RemotingCommand:
    fields = {"topic": "T", "group": "CG", "timestamp": "-1", "isForce": "true"}
    return RemotingCommand.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)


async def _passes(condition: Callable[[], object]) -> int:
    """How many iterations of the loop pass: other connections are served in each of them."""
    passes = 0
    while not condition():
        await asyncio.sleep(0)
        passes += 1
    return passes


@pytest.mark.parametrize(
    "request_",
    [pop("T"), pop("T", order=True), notify("T"), peek("T"), query_assignment("T"), _reset()],
    ids=["pop", "ordered pop", "notification", "peek", "assignment", "reset"],
)
async def test_a_request_that_looks_into_all_queues_runs_in_slices(
    broker: _Broker, request_: RemotingCommand
) -> None:
    assert await _passes(broker.ask(request_).done) >= _QUEUES // ITEMS_PER_SLICE - 1


async def test_many_walks_together_take_one_slice_in_each_iteration(broker: _Broker) -> None:
    walks = [broker.ask(notify("T")) for _ in range(10)]
    passes = await _passes(lambda: all(walk.done() for walk in walks))
    assert passes >= 10 * (_QUEUES // ITEMS_PER_SLICE - 1)


async def test_the_last_queue_is_found(broker: _Broker) -> None:
    broker.put(1, queue_id=_QUEUES - 1)
    broker.put(2, queue_id=ITEMS_PER_SLICE)
    peeked = await broker.answer(broker.ask(peek("T")))
    assert PopMessageResponseHeader.decode(peeked.ext_fields).rest_num == 3
    noticed = await broker.answer(broker.ask(notify("T")))
    assert NotificationResponseHeader.decode(noticed.ext_fields).has_msg
    answer = await broker.answer(broker.ask(pop("T", count=2)))
    header = PopMessageResponseHeader.decode(answer.ext_fields)
    assert header.start_offset_info == f"0 {ITEMS_PER_SLICE} 0" and header.rest_num == 1


async def test_an_assignment_and_a_reset_name_every_queue(broker: _Broker) -> None:
    broker.put(3, queue_id=_QUEUES - 1)
    every = [MessageQueue("T", "broker-a", number) for number in range(_QUEUES)]
    answer = await broker.answer(broker.ask(query_assignment("T")))
    whole = QueryAssignmentResponseBody(
        message_queue_assignments=[MessageQueueAssignment(message_queue=queue) for queue in every]
    )
    assert answer.body == whole.encode()
    answer = await broker.answer(broker.ask(_reset()))
    table = ResetOffsetBody.decode(answer.body).offset_table
    assert list(table) == every and table[every[-1]] == 3
    assert broker.offsets.query("CG", "T", _QUEUES - 1) == 3


@pytest.mark.parametrize("kind", ["pop", "notification"])
async def test_a_message_behind_the_walk_is_not_missed(broker: _Broker, kind: str) -> None:
    """It is stored in a queue that the walk has passed, before the request is held."""
    make = pop if kind == "pop" else notify
    future = broker.ask(make("T", poll_ms=_LONG_MS, born_ms=broker.clock()))
    await asyncio.sleep(0)
    broker.put(1, queue_id=0)
    answer = await broker.answer(future)
    if kind == "pop":
        assert answer.code == ResponseCode.SUCCESS
    else:
        assert NotificationResponseHeader.decode(answer.ext_fields).has_msg


@pytest.mark.parametrize("request_", [pop("T"), notify("T"), peek("T")], ids=["pop", "notification", "peek"])
async def test_the_deletion_of_a_topic_ends_a_walk(broker: _Broker, request_: RemotingCommand) -> None:
    future = broker.ask(request_)
    await asyncio.sleep(0)
    broker.topics.delete(["T"])
    with pytest.raises(CommandError) as refusal:
        await broker.answer(future)
    assert refusal.value.code == ResponseCode.TOPIC_NOT_EXIST
    assert len(broker.offsets.offsets_of("CG", "T")) <= 2 * ITEMS_PER_SLICE


async def test_a_reset_ends_with_its_group(broker: _Broker) -> None:
    future = broker.ask(_reset())
    await _passes(lambda: broker.offsets.offsets_of("CG", "T"))
    broker.groups.delete("CG")
    with pytest.raises(CommandError) as refusal:
        await broker.answer(future)
    assert refusal.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_walk_through_fewer_queues_than_it_began_with(broker: _Broker) -> None:
    future = broker.ask(pop("T"))
    await asyncio.sleep(0)
    broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=200, write_queue_nums=_QUEUES))
    await broker.answer(future)
    assert len(broker.offsets.offsets_of("CG", "T")) == 200


async def test_a_client_that_disconnects_ends_its_walk(broker: _Broker) -> None:
    future = broker.ask(pop("T"))
    await asyncio.sleep(0)
    broker.peer.connection.abort()
    assert await _passes(future.done) < 10
    assert future.result() is None


async def test_a_held_pop_is_woken_by_a_message_during_its_look(broker: _Broker) -> None:
    future = broker.ask(pop("T", poll_ms=_LONG_MS, born_ms=broker.clock()))
    held = broker.services.pops.held_pops
    await _passes(lambda: held.count)
    held.wake(QueueKey("T", "CG", -1))
    for _ in range(4):
        await asyncio.sleep(0)
    assert not future.done()
    broker.put(1, queue_id=0)
    assert (await broker.answer(future)).code == ResponseCode.SUCCESS
