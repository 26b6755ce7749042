"""Admin requests forwarded to a running consumer (codes 223, 307, 309)."""

from __future__ import annotations

import asyncio

import pytest

from rmq_broker.processors.admin.relays import ConsumerRelayProcessor
from rmq_remoting.answers import Result
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.offsets import GetConsumerStatusBody
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from rmq_remoting.framing import encode_frame
from rmq_remoting.message_ids import offset_message_id
from rmq_remoting.message_queue import MessageQueue
from tests.support.broker_tables import BrokerTables
from tests.support.peers import Peer
from tests.support.waiting import until
from tests.unit.broker.processors.parts import answer_of

_MESSAGE_ID = offset_message_id(("10.0.0.1", 10911), 4096)


class _Broker(BrokerTables):
    """A broker with one stored message, and members that answer on command."""

    def __init__(self) -> None:
        super().__init__()
        self.groups.update(SubscriptionGroupConfig(group_name="CG", group_sys_flag=2))
        self.topics.update(TopicConfig(topic_name="T", topic_sys_flag=1))
        records = {4096: b"the record"}
        self.relay = ConsumerRelayProcessor(self.consumers, self.groups, self.topics, records.get, "broker-a")
        self.admin = Peer()

    def running_info(self, client_id: str = "c1") -> Result:
        fields = {"consumerGroup": "CG", "clientId": client_id, "jstackEnable": "true"}
        request = RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        return self.relay.running_info(self.admin.connection, request)

    def consume(self, message_id: str | None = _MESSAGE_ID) -> Result:
        fields = {"consumerGroup": "CG", "clientId": "c1", "topic": "T"}
        if message_id is not None:
            fields["msgId"] = message_id
        request = RemotingCommand.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
        return self.relay.consume_directly(self.admin.connection, request)

    def status(self, client_id: str | None = None) -> Result:
        fields = {"group": "CG", "topic": "T"}
        if client_id is not None:
            fields["clientAddr"] = client_id
        request = RemotingCommand.request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields)
        return self.relay.status(self.admin.connection, request)


async def _asked(peer: Peer) -> RemotingCommand:
    """Return the request that the broker sent to a member."""
    await until(lambda: peer.received)
    (request,) = peer.received
    assert not request.is_oneway
    return request


def _reply(peer: Peer, response: RemotingCommand) -> None:
    peer.connection.data_received(encode_frame(response))


async def test_running_info_is_the_clients_own_answer() -> None:
    broker = _Broker()
    member = broker.join("c1")
    broker.join("c2")
    promise = broker.running_info()
    asked = await _asked(member)
    assert asked.code == RequestCode.GET_CONSUMER_RUNNING_INFO
    assert asked.ext_fields == {"consumerGroup": "CG", "clientId": "c1", "jstackEnable": "true"}
    _reply(member, asked.response(ResponseCode.SUCCESS, "well", {"a": "b"}, b"{}"))
    answer = await answer_of(promise)
    assert (answer.code, answer.remark, answer.ext_fields, answer.body) == (0, "well", {"a": "b"}, b"{}")


async def test_client_error_is_forwarded() -> None:
    broker = _Broker()
    member = broker.join("c1")
    promise = broker.running_info()
    _reply(member, (await _asked(member)).response(ResponseCode.SYSTEM_ERROR, "not my group"))
    answer = await answer_of(promise)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "not my group")


async def test_disconnected_or_old_clients_are_refused() -> None:
    broker = _Broker()
    old = broker.join("c1", version=61)
    for client_id, remark in (("c1", "too old"), ("c9", "'c9' of group CG is not connected")):
        with pytest.raises(CommandError, match=remark) as refusal:
            broker.running_info(client_id)
        assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    assert old.received == []


async def test_client_that_disconnects_without_an_answer() -> None:
    broker = _Broker()
    member = broker.join("c1")
    promise = broker.running_info()
    await _asked(member)
    member.transport.abort()
    with pytest.raises(CommandError, match="cannot be asked") as refusal:
        await answer_of(promise)
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR


async def test_a_client_that_does_not_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmq_broker.processors.admin.relays.CALL_SECONDS", 0.0)
    broker = _Broker()
    broker.join("c1")
    with pytest.raises(CommandError, match="has not answered in time") as refusal:
        await answer_of(broker.running_info())
    assert refusal.value.code == ResponseCode.CONSUME_MSG_TIMEOUT


async def test_one_consumer_consumes_a_stored_message() -> None:
    broker = _Broker()
    member = broker.join("c1")
    promise = broker.consume()
    asked = await _asked(member)
    assert asked.code == RequestCode.CONSUME_MESSAGE_DIRECTLY
    assert asked.body == b"the record"
    assert asked.ext_fields == {
        "consumerGroup": "CG",
        "clientId": "c1",
        "topic": "T",
        "msgId": _MESSAGE_ID,
        "brokerName": "broker-a",
        "topicSysFlag": "1",
        "groupSysFlag": "2",
    }
    _reply(member, asked.response(ResponseCode.SUCCESS, body=b'{"consumeResult":"CR_SUCCESS"}'))
    assert (await answer_of(promise)).body == b'{"consumeResult":"CR_SUCCESS"}'


@pytest.mark.parametrize("message_id", [None, "", "xyz", "0A00000100002A9FFFFFFFFFFFFFFFFF"])
async def test_invalid_message_ids(message_id: str | None) -> None:
    broker = _Broker()
    broker.join("c1")
    with pytest.raises(CommandError, match="msgId") as refusal:
        broker.consume(message_id)
    assert refusal.value.code == ResponseCode.INVALID_PARAMETER


async def test_deleted_message_is_not_forwarded() -> None:
    broker = _Broker()
    member = broker.join("c1")
    with pytest.raises(CommandError, match="no message begins at offset 4097"):
        await answer_of(broker.consume(offset_message_id(("10.0.0.1", 10911), 4097)))
    assert member.received == []


def _offsets(offset: int) -> bytes:
    return GetConsumerStatusBody(message_queue_table={MessageQueue("T", "broker-a", 0): offset}).encode()


async def test_offsets_of_all_members() -> None:
    broker = _Broker()
    members = {name: broker.join(name) for name in ("c1", "c2", "c3", "c4")}
    promise = broker.status()
    asked = {name: await _asked(peer) for name, peer in members.items()}
    for name in ("c1", "c2"):
        assert asked[name].code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        assert asked[name].ext_fields == {"group": "CG", "topic": "T"}
        _reply(members[name], asked[name].response(ResponseCode.SUCCESS, body=_offsets(int(name[1]))))
    _reply(members["c3"], asked["c3"].response(ResponseCode.SYSTEM_ERROR, "no"))
    _reply(members["c4"], asked["c4"].response(ResponseCode.SUCCESS, body=b"{"))
    body = GetConsumerStatusBody.decode((await answer_of(promise)).body)
    queue = MessageQueue("T", "broker-a", 0)
    assert body.consumer_table == {"c1": {queue: 1}, "c2": {queue: 2}}


async def test_offsets_of_one_member() -> None:
    broker = _Broker()
    broker.join("c1")
    member = broker.join("c2")
    promise = broker.status("c2")
    _reply(member, (await _asked(member)).response(ResponseCode.SUCCESS, body=_offsets(5)))
    body = GetConsumerStatusBody.decode((await answer_of(promise)).body)
    assert list(body.consumer_table) == ["c2"]
    with pytest.raises(CommandError, match="'c9' of group CG is not connected"):
        broker.status("c9")


async def test_consumer_status_without_members() -> None:
    broker = _Broker()
    with pytest.raises(CommandError, match="no consumer of group CG is connected") as refusal:
        broker.status()
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    broker.join("c1", version=27)
    with pytest.raises(CommandError, match="too old"):
        broker.status()
    assert not asyncio.all_tasks() - {asyncio.current_task()}
