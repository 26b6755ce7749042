"""The same requests about groups to Apache's broker and to this project's, byte for byte: equal answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

import pytest

from rmq_remoting.bodies import fastjson
from rmq_remoting.bodies.lock import LockBatchRequestBody, UnlockBatchRequestBody
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.message_queue import MessageQueue
from tests.interop.clusters import Apache, Own
from tests.support.broker_requests import (
    ask_among_notifications,
    create_topic,
    heartbeat,
    pull,
    request,
    send,
)
from tests.support.raw_client import RawClient, raw_client

pytestmark = pytest.mark.java

_JSON = Serialization.JSON


class _Pair:
    """A connection to each broker."""

    def __init__(self, clients: Mapping[str, RawClient]) -> None:
        self._clients = clients

    async def same(self, command: RemotingCommand, fields: tuple[str, ...] = ()) -> RemotingCommand:
        """Return this project's answer after comparing code, body and these fields with Apache's."""
        answers = {}
        for name, client in self._clients.items():
            # Each connection numbers its requests itself.
            answers[name], _ = await ask_among_notifications(client, command)
        ours, apaches = answers["ours"], answers["apache"]
        seen, expected = (
            (answer.code, _content(command, answer), {name: answer.ext_fields.get(name) for name in fields})
            for answer in (ours, apaches)
        )
        assert seen == expected, f"{command.code} {command.ext_fields}: {ours.remark} / {apaches.remark}"
        return ours

    async def answers(self, command: RemotingCommand) -> tuple[RemotingCommand, RemotingCommand]:
        """Return both answers to a request in which they differ."""
        ours, _ = await ask_among_notifications(self._clients["ours"], command)
        apaches, _ = await ask_among_notifications(self._clients["apache"], command)
        return ours, apaches


def _content(asked: RemotingCommand, answer: RemotingCommand) -> object:
    """The places of the messages of a pull; of other answers the JSON, with lists in any order."""
    if asked.code == Code.PULL_MESSAGE:
        return [message.queue_offset for message in decode_messages(answer.body)]
    return _unordered(fastjson.loads(answer.body)) if answer.body else None


def _unordered(value: object) -> object:
    if isinstance(value, list):
        return sorted(map(_unordered, value), key=repr)
    if isinstance(value, dict):
        return {key: _unordered(member) for key, member in value.items()}
    return value


def _locks(client_id: str, *queues: MessageQueue, code: Code = Code.LOCK_BATCH_MQ) -> RemotingCommand:
    kind = LockBatchRequestBody if code is Code.LOCK_BATCH_MQ else UnlockBatchRequestBody
    body = kind(client_id=client_id, consumer_group=queues[0].topic, mq_set=list(queues))
    return request(code, body.encode())


@pytest.fixture
async def pair(own: Own, apache: Apache, name: str) -> AsyncIterator[_Pair]:
    """Both brokers with a topic of that name, two queues, five messages in one, and a group of that name."""
    async with AsyncExitStack() as stack:
        clients = {
            side: await stack.enter_async_context(raw_client(cluster[1].port))
            for side, cluster in (("ours", own), ("apache", apache))
        }
        pair = _Pair(clients)
        await pair.same(create_topic(name, 2))
        for _ in range(5):
            await pair.same(send(name, serialization=_JSON), ("queueId", "queueOffset"))
        await pair.same(heartbeat("c1", name, {name: "*"}))
        yield pair


async def test_locks(pair: _Pair, name: str) -> None:
    first, second = (MessageQueue(name, "broker-a", queue_id) for queue_id in (0, 1))
    for command in (
        _locks("c1", first),
        _locks("c2", first),
        _locks("c2", second),
        _locks("c1", first, second),
        _locks("c2", first, code=Code.UNLOCK_BATCH_MQ),
        _locks("c2", first),
        _locks("c1", first, code=Code.UNLOCK_BATCH_MQ),
        _locks("c2", first),
    ):
        await pair.same(command)


async def test_offsets(pair: _Pair, name: str) -> None:
    place = {"consumerGroup": name, "topic": name, "queueId": 0}
    moved = ("nextBeginOffset", "minOffset", "maxOffset", "forbiddenType")

    async def offset(**fields: object) -> None:
        await pair.same(request(Code.QUERY_CONSUMER_OFFSET, **{**place, **fields}), ("offset",))

    async def pulls(at: int) -> None:
        await pair.same(pull(name, name, offset=at, count=1, serialization=_JSON), moved)

    await offset()
    await offset(setZeroIfNotFound=False)
    await offset(queueId=2)
    await offset(consumerGroup="unknown" + name)
    ours, apaches = await pair.answers(request(Code.QUERY_CONSUMER_OFFSET, **{**place, "queueId": 1}))
    assert (ours.code, ours.ext_fields) == (ResponseCode.SUCCESS, {"offset": "0"}), "an empty queue"
    assert apaches.code == ResponseCode.QUERY_NOT_FOUND
    await pair.same(request(Code.UPDATE_CONSUMER_OFFSET, **place, commitOffset=4))
    await offset()
    for unknown in ("consumerGroup", "topic"):
        commit = {**place, unknown: "unknown" + name, "commitOffset": 1}
        await pair.same(request(Code.UPDATE_CONSUMER_OFFSET, **commit))
    reset = {"topic": name, "group": name, "isForce": True}
    for fields in (
        {"timestamp": 0, "queueId": 0, "offset": 1},
        {"timestamp": 0, "queueId": 0, "offset": 9},
        {"timestamp": 0, "queueId": 0},
        {"timestamp": -1},
        {"timestamp": 0},
        {"timestamp": 0, "topic": "unknown" + name},
        {"timestamp": 0, "group": "unknown" + name},
    ):
        await pair.same(request(Code.INVOKE_BROKER_TO_RESET_OFFSET, **{**reset, **fields}))
        await offset()
    await pair.same(request(Code.UPDATE_CONSUMER_OFFSET, **place, commitOffset=3))
    await offset()
    await pulls(4)
    await pulls(0)
    await offset()


async def test_offsets_of_several_groups(pair: _Pair, name: str) -> None:
    place = {"topic": name, "queueId": 0}
    await pair.same(heartbeat("c2", "b" + name, {name: "*"}))
    for group, offset in ((name, 2), ("b" + name, 4)):
        await pair.same(
            request(Code.UPDATE_CONSUMER_OFFSET, **place, consumerGroup=group, commitOffset=offset)
        )
    for compared in (name, "b" + name, "unknown" + name):
        await pair.same(request(Code.QUERY_CORRECTION_OFFSET, topic=name, compareGroup=compared))
    clone = {"srcGroup": name, "destGroup": "b" + name, "topic": name, "offline": False}
    await pair.same(request(Code.CLONE_GROUP_OFFSET, **clone))
    asked = {**place, "consumerGroup": "b" + name}
    assert (await pair.same(request(Code.QUERY_CONSUMER_OFFSET, **asked), ("offset",))).ext_fields == {
        "offset": "2"
    }
    await pair.same(request(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, group="unknown" + name, topic=name))
    # A group that pulls more than it commits.
    await pair.same(pull(name, name, offset=2, count=2, commit=2, serialization=_JSON))
    await pair.same(request(Code.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=name))
    await pair.same(request(Code.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="unknown" + name))


async def test_read_permissions_of_groups(pair: _Pair, name: str) -> None:
    asked = {"group": name, "topic": name}
    await pair.same(request(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, **asked))
    pulling = pull(name, name, subscription=None, serialization=_JSON)
    for readable in (False, True):
        await pair.same(request(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, **asked, readable=readable))
        answer = await pair.same(pulling, ("forbiddenType",))
        assert answer.ext_fields.get("forbiddenType") == (None if readable else "5")


async def test_unknown_members(pair: _Pair, name: str) -> None:
    member = {"consumerGroup": name, "clientId": "unknown"}
    await pair.same(request(Code.GET_CONSUMER_RUNNING_INFO, **member))
    await pair.same(request(Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup="unknown" + name))
    fields = {"topic": name, "group": "unknown" + name}
    await pair.same(request(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, **fields))
