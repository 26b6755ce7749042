"""What a group is asked and told by its broker, over the wire: locks, resets, questions to its members."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from rmq_remoting.bodies.group import GroupForbidden
from rmq_remoting.bodies.lock import LockBatchRequestBody, LockBatchResponseBody
from rmq_remoting.bodies.offsets import ConsumeStats, ResetOffsetBody
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.message_queue import MessageQueue
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
    succeeded,
)
from tests.support.brokers import RunningBroker, running_broker
from tests.support.raw_client import RawClient
from tests.support.waiting import until

_QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(4)]


async def _ok(client: RawClient, command: RemotingCommand) -> RemotingCommand:
    answer, _ = await ask_among_notifications(client, command)
    return succeeded(answer)


async def _lock(client: RawClient, client_id: str, queues: list[MessageQueue]) -> list[MessageQueue]:
    body = LockBatchRequestBody(client_id=client_id, consumer_group="CG", mq_set=queues).encode()
    answer = await _ok(client, request(Code.LOCK_BATCH_MQ, body))
    return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set


def _reset(**fields: object) -> RemotingCommand:
    chosen = {"topic": "T", "group": "CG", "timestamp": 0, "isForce": True, **fields}
    return request(Code.INVOKE_BROKER_TO_RESET_OFFSET, **chosen)


async def test_ordered_consumers_share_queues_out_by_locks(broker: RunningBroker, client: RawClient) -> None:
    await _ok(client, create_topic("T", 4))
    async with broker.client() as other:
        assert await _lock(client, "c1", _QUEUES[:3]) == _QUEUES[:3]
        assert await _lock(other, "c2", _QUEUES) == _QUEUES[3:]
        body = LockBatchRequestBody(client_id="c1", consumer_group="CG", mq_set=_QUEUES[:1]).encode()
        await _ok(client, request(Code.UNLOCK_BATCH_MQ, body))
        assert await _lock(other, "c2", _QUEUES) == [_QUEUES[0], _QUEUES[3]]


async def test_a_reset_reaches_a_pull_that_waits(broker: RunningBroker, client: RawClient) -> None:
    """Its consumer goes back at once, and a commit that was on its way does not undo that."""
    for _ in range(3):
        sent(await client.ask(send("T")))
    assert len(pulled(await client.ask(pull("T", offset=0)))) == 3
    waiting = pull("T", offset=3, suspend_ms=20_000, commit=3)
    client.send(waiting)
    await until(lambda: broker.held_pulls.count == 1)

    async with broker.client() as admin:
        answer = await _ok(admin, _reset(queueId=0, offset=1))
        assert ResetOffsetBody.decode(answer.body).offset_table == {MessageQueue("T", "broker-a", 0): 1}
        assert (await admin.ask(_reset(queueId=0, offset=4))).code == ResponseCode.SYSTEM_ERROR

    moved = await client.receive()
    assert (moved.opaque, moved.code) == (waiting.opaque, ResponseCode.PULL_OFFSET_MOVED)
    assert offsets(moved) == (1, 0, 3)
    place = {"consumerGroup": "CG", "topic": "T", "queueId": 0}
    committed = await _ok(client, request(Code.QUERY_CONSUMER_OFFSET, **place))
    assert committed.ext_fields == {"offset": "1"}
    assert [message.queue_offset for message in pulled(await client.ask(pull("T", offset=1)))] == [1, 2]


async def test_a_reset_is_on_disk_when_it_is_answered(broker: RunningBroker, client: RawClient) -> None:
    for _ in range(2):
        sent(await client.ask(send("T")))
    await client.ask(pull("T", commit=2))
    await _ok(client, _reset(queueId=0, timestamp=0))
    file = broker.broker.settings.config_dir / "consumerOffset.json"
    assert '"T@CG":{0:0' in await asyncio.to_thread(file.read_text)


async def test_a_member_is_told_of_a_reset_from_before_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, broker.client() as client:
        for _ in range(3):
            sent(await client.ask(send("T")))
        await client.ask(pull("T", commit=2))
        await _ok(client, _reset(queueId=0, offset=1))
    commit = {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 3}
    async with running_broker(tmp_path) as broker, broker.client() as client:
        await _ok(client, request(Code.UPDATE_CONSUMER_OFFSET, **commit))
        moved = await client.ask(pull("T", offset=3, commit=3))
        assert (moved.code, offsets(moved)) == (ResponseCode.PULL_OFFSET_MOVED, (1, 0, 3))
    async with running_broker(tmp_path) as broker, broker.client() as client:
        assert len(pulled(await client.ask(pull("T", offset=1)))) == 2, "it is told once"


async def test_a_member_is_asked_about_itself(broker: RunningBroker, client: RawClient) -> None:
    async with broker.client() as member:
        await ask_among_notifications(member, heartbeat("c1", "CG", {"T": "*"}))
        assert (await member.receive()).code == Code.NOTIFY_CONSUMER_IDS_CHANGED
        question = request(Code.GET_CONSUMER_RUNNING_INFO, consumerGroup="CG", clientId="c1")
        client.send(question)
        asked = await member.receive()
        assert asked.code == Code.GET_CONSUMER_RUNNING_INFO
        member.send(asked.response(ResponseCode.SUCCESS, body=b'{"properties":{}}'))
        answer = await client.receive()
        assert (answer.opaque, answer.code, answer.body) == (question.opaque, 0, b'{"properties":{}}')
    other = await client.ask(request(Code.GET_CONSUMER_RUNNING_INFO, consumerGroup="CG", clientId="c2"))
    assert (other.code, "'c2' of group CG is not connected" in str(other.remark)) == (1, True)


async def test_a_member_is_given_a_stored_message(broker: RunningBroker, client: RawClient) -> None:
    stored = sent(await client.ask(send("T", b"once more")))
    async with broker.client() as member:
        await ask_among_notifications(member, heartbeat("c1", "CG", {"T": "*"}))
        assert (await member.receive()).code == Code.NOTIFY_CONSUMER_IDS_CHANGED
        place = {"consumerGroup": "CG", "clientId": "c1", "topic": "T", "msgId": stored.msg_id}
        client.send(request(Code.CONSUME_MESSAGE_DIRECTLY, **place))
        asked = await member.receive()
        (message,) = pulled(asked.response(ResponseCode.SUCCESS, body=asked.body))
        assert (message.body, asked.ext_fields["brokerName"]) == (b"once more", "broker-a")
        member.send(asked.response(ResponseCode.SUCCESS, body=b'{"consumeResult":"CR_LATER"}'))
        assert (await client.receive()).body == b'{"consumeResult":"CR_LATER"}'


async def test_what_a_group_may_not_read_it_does_not_get(broker: RunningBroker, client: RawClient) -> None:
    sent(await client.ask(send("T")))
    await ask_among_notifications(client, heartbeat("c1", "CG", {"T": "*"}))
    assert (await client.receive()).code == Code.NOTIFY_CONSUMER_IDS_CHANGED

    async def forbid(readable: bool) -> None:
        fields = {"group": "CG", "topic": "T", "readable": readable}
        answer = await _ok(client, request(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, **fields))
        assert GroupForbidden.decode(answer.body).readable is readable

    await forbid(False)
    refused = await client.ask(pull("T", subscription=None))
    assert refused.code == ResponseCode.NO_PERMISSION
    file = broker.broker.settings.config_dir / "subscriptionGroup.json"
    text = await asyncio.to_thread(file.read_text)
    assert json.loads(text)["forbiddenTable"] == {"CG": {"T": 4}}
    await forbid(True)
    assert len(pulled(await client.ask(pull("T", subscription=None)))) == 1


async def test_progress_tells_what_is_in_flight(client: RawClient) -> None:
    for _ in range(5):
        sent(await client.ask(send("T")))
    assert len(pulled(await client.ask(pull("T", count=3, commit=1)))) == 3
    answer = await _ok(client, request(Code.GET_CONSUME_STATS, consumerGroup="CG", topic="T"))
    reach = ConsumeStats.decode(answer.body).offset_table[MessageQueue("T", "broker-a", 0)]
    assert (reach.consumer_offset, reach.pull_offset, reach.broker_offset) == (1, 3, 5)


async def test_commits_that_cannot_be_are_refused(client: RawClient) -> None:
    sent(await client.ask(send("T")))
    await client.ask(pull("T", commit=1))
    for fields in ({"commitOffset": 2}, {"commitOffset": 2**62}, {"commitOffset": -5}, {"queueId": 99}):
        place = {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 0, **fields}
        answer = await client.ask(request(Code.UPDATE_CONSUMER_OFFSET, **place))
        assert answer.code == ResponseCode.INVALID_PARAMETER, fields
    # One that comes with a pull has nobody to be told to.
    await client.ask(pull("T", commit=2**62))
    asked = request(Code.QUERY_CONSUMER_OFFSET, consumerGroup="CG", topic="T", queueId=0)
    assert (await _ok(client, asked)).ext_fields == {"offset": "1"}
