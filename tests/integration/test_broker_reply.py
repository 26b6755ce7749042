"""Request-reply over the wire: replies (324, 325), and their push to the requester (326)."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.headers.reply import ReplyMessageRequestHeader
from rmq_remoting.message_properties import decode_properties
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.broker_requests import heartbeat, pull, pulled, send, sent, succeeded
from tests.support.brokers import RunningBroker, running_broker
from tests.support.raw_client import RawClient

_TOPIC = "DefaultCluster_REPLY_TOPIC"
_PROPERTIES = {"MSG_TYPE": "reply", "CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "asker", "TTL": "3000"}


def _reply(body: bytes = b"pong", **options: object) -> RemotingCommand:
    given = {"code": Code.SEND_REPLY_MESSAGE_V2, "properties": _PROPERTIES, "group": "answering", **options}
    return send(_TOPIC, body, **given)  # type: ignore[arg-type]


async def _ask(member: RawClient) -> None:
    succeeded(await member.ask(heartbeat("asker", None, producer_groups=["asking"])))


@pytest.mark.parametrize("code", [Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2])
@pytest.mark.parametrize("serialization", Serialization)
async def test_a_reply_is_pushed_to_who_asked(
    client: RawClient, member: RawClient, code: Code, serialization: Serialization
) -> None:
    await _ask(member)
    packed, compressed = zlib.compress(b"pong"), MessageSysFlag.COMPRESSED
    reply = _reply(packed, code=code, serialization=serialization, flag=7, sys_flag=compressed)
    if code == Code.SEND_REPLY_MESSAGE:
        reply = _with_long_names(reply)
    client.send(reply)

    push = await member.receive()
    assert (push.code, push.body, push.is_oneway) == (Code.PUSH_REPLY_MESSAGE_TO_CLIENT, packed, False)
    header = ReplyMessageRequestHeader.decode(push.ext_fields)
    assert (header.topic, header.producer_group, header.flag) == (_TOPIC, "answering", 7)
    assert header.sys_flag == compressed
    assert header.born_host.startswith("127.0.0.1:")
    assert header.store_host.startswith("127.0.0.1:")
    properties = decode_properties((header.properties or "").encode())
    assert 0 <= header.store_timestamp - int(properties.pop("PUSH_REPLY_TIME")) < 10_000
    assert properties == _PROPERTIES

    member.send(push.response(ResponseCode.SUCCESS))
    answer = await client.receive()
    assert answer.opaque == reply.opaque
    placed = sent(answer)
    assert (placed.queue_id, placed.queue_offset) == (0, 0)
    assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"
    assert answer.ext_fields["TRACE_ON"] == "true"
    (stored,) = pulled(await client.ask(pull(_TOPIC, "reader")))
    assert (stored.offset_msg_id, stored.flag) == (placed.msg_id, 7)
    assert stored.properties == _PROPERTIES
    assert stored.body == b"pong", "who reads it knows that the body is compressed"


def _with_long_names(command: RemotingCommand) -> RemotingCommand:
    fields = command.ext_fields
    names = {
        "a": "producerGroup",
        "b": "topic",
        "c": "defaultTopic",
        "d": "defaultTopicQueueNums",
        "e": "queueId",
        "f": "sysFlag",
        "g": "bornTimestamp",
        "h": "flag",
        "i": "properties",
        "j": "reconsumeTimes",
        "k": "unitMode",
        "m": "batch",
    }
    long_names = {names[name]: value for name, value in fields.items()}
    return RemotingCommand.request(
        Code.SEND_REPLY_MESSAGE, long_names, command.body, serialization=command.serialization
    )


async def test_replies_need_not_be_stored(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, storeReplyMessageEnable="false") as broker,
        broker.client() as client,
        broker.client() as member,
    ):
        await _ask(member)
        client.send(_reply())
        member.send((await member.receive()).response(ResponseCode.SUCCESS))
        placed = sent(await client.receive())
        assert (placed.msg_id, placed.queue_offset) == ("0", 0)
        assert (await client.ask(pull(_TOPIC, "reader"))).code == ResponseCode.PULL_NOT_FOUND


async def test_who_asked_may_not_take_it(client: RawClient, member: RawClient) -> None:
    await _ask(member)
    client.send(_reply())
    member.send((await member.receive()).response(ResponseCode.SYSTEM_ERROR, "too late"))
    answer = await client.receive()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "refused the reply: 1 too late" in (answer.remark or "")
    assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"


async def test_who_asked_may_be_gone(broker: RunningBroker, client: RawClient) -> None:
    async with broker.client() as member:
        await _ask(member)
        client.send(_reply())
        await member.receive()
    assert (await client.receive()).code == ResponseCode.SYSTEM_ERROR
    answer = await client.ask(_reply())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "asker is not connected to this broker as a producer" in (answer.remark or "")


@pytest.mark.parametrize(
    ("options", "code", "remark"),
    [
        ({"properties": {"CORRELATION_ID": "c-1"}}, ResponseCode.SYSTEM_ERROR, "property REPLY_TO_CLIENT"),
        ({"body": b""}, ResponseCode.MESSAGE_ILLEGAL, "0 bytes: it must have 1 to 4194304"),
        ({"queue_id": 9}, ResponseCode.INVALID_PARAMETER, "queue id 9 is illegal"),
    ],
)
async def test_replies_that_are_none(
    client: RawClient, options: dict[str, object], code: ResponseCode, remark: str
) -> None:
    body = options.pop("body", b"pong")
    assert isinstance(body, bytes)
    answer = await client.ask(_reply(body, **options))
    assert answer.code == code
    assert remark in (answer.remark or "")
    assert answer.ext_fields["TRACE_ON"] == "true"


async def test_a_reply_to_a_topic_that_is_not_there(client: RawClient) -> None:
    reply = send("Nowhere", b"x", code=Code.SEND_REPLY_MESSAGE_V2, default_topic="None")
    answer = await client.ask(reply)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
