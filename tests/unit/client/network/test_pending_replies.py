"""Replies that brokers push, compressed ones among them."""

from __future__ import annotations

import random
import zlib

import pytest

from rmq_client.network.pending_replies import PendingReplies
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.headers.reply import ReplyMessageRequestHeader
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.peers import Peer
from tests.support.waiting import until

_MAX_BODY = 200_000
_LARGE = random.Random(1).randbytes(100_000)


def _push(body: bytes, sys_flag: int = 0) -> RemotingCommand:
    header = ReplyMessageRequestHeader(
        producer_group="g",
        topic="DefaultCluster_REPLY_TOPIC",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=sys_flag,
        born_timestamp=5,
        flag=3,
        properties="CORRELATION_ID\x01c\x02",
        born_host="10.0.0.1:7",
        store_host="10.0.0.2:8",
        store_timestamp=6,
    )
    return RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header.encode(), body)


def _broker_of(replies: PendingReplies) -> Peer:
    dispatcher = Dispatcher()
    replies.register(dispatcher)
    return Peer(dispatcher)


async def _answer(broker: Peer, push: RemotingCommand) -> RemotingCommand:
    broker.send(push)
    await until(lambda: push.opaque in broker.answers)
    return broker.answers[push.opaque]


@pytest.mark.parametrize("body", [b"pong", _LARGE])
@pytest.mark.parametrize("is_compressed", [False, True])
async def test_a_reply_reaches_its_request(body: bytes, is_compressed: bool) -> None:
    replies = PendingReplies(_MAX_BODY, lambda: 9)
    broker, reply = _broker_of(replies), replies.expect("c")
    if is_compressed:
        push = _push(zlib.compress(body), MessageSysFlag.COMPRESSED | MessageSysFlag.BORN_HOST_V6)
    else:
        push = _push(body, MessageSysFlag.BORN_HOST_V6)
    assert (await _answer(broker, push)).code == ResponseCode.SUCCESS
    message = await reply
    assert (message.body, message.sys_flag, message.flag) == (body, MessageSysFlag.BORN_HOST_V6, 3)
    assert (message.born_host, message.properties["ARRIVE_TIME"]) == (("10.0.0.1", 7), "9")


async def test_a_reply_that_cannot_be_decompressed_is_refused() -> None:
    replies = PendingReplies(_MAX_BODY, lambda: 9)
    broker, reply = _broker_of(replies), replies.expect("c")
    for body in (b"no zlib", zlib.compress(bytes(_MAX_BODY + 1))):
        answer = await _answer(broker, _push(body, MessageSysFlag.COMPRESSED))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "the reply cannot be decompressed" in (answer.remark or "")
    assert not reply.done()


async def test_a_reply_after_its_request_is_dropped() -> None:
    replies = PendingReplies(_MAX_BODY, lambda: 9)
    broker, reply = _broker_of(replies), replies.expect("c")
    replies.forget("c")
    assert (await _answer(broker, _push(b"pong"))).code == ResponseCode.SUCCESS
    assert not reply.done()
