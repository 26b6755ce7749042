"""A broker with a replay window: recorded sends have no effect, honest ones do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmq_broker.access.signed_times import TIMED_CODES
from rmq_broker.clock import now_ms
from rmq_client import (
    Admin,
    BatchPolicy,
    ClientSettings,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    SimpleConsumer,
)
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization, next_opaque
from rmq_remoting.daemon.configuration import SettingsError
from rmq_remoting.framing import FrameDecoder, encode_frame
from rmq_remoting.message import Message as WireMessage
from rmq_remoting.message_batch import encode_batch
from tests.support.broker_requests import create_topic, send, sent
from tests.support.brokers import RunningBroker, broker_configuration, running_broker
from tests.support.namesrv import running_namesrv
from tests.support.push_consumers import Inbox
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.raw_client import RawClient
from tests.support.signed_requests import AUTHENTICATION, ROOT, ask_as, signed
from tests.support.waiting import until

_WINDOW = {**AUTHENTICATION, "signatureReplayWindowSeconds": 60}
_OTHER_HOST = "127.0.0.2"
_LONG_NAMES = {Code.SEND_MESSAGE, Code.SEND_REPLY_MESSAGE}


@asynccontextmanager
async def _broker(folder: Path, **keys: object) -> AsyncIterator[tuple[RunningBroker, RawClient]]:
    """A broker with a topic of one queue, and a client of its main port."""
    async with running_broker(folder, **{**_WINDOW, **keys}) as broker, broker.client() as client:
        made = await client.ask(signed(create_topic("T", 1), ROOT))
        assert made.code == ResponseCode.SUCCESS
        yield broker, client


@asynccontextmanager
async def _client_elsewhere(port: int) -> AsyncIterator[RawClient]:
    """A client whose connection comes from another address."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(_OTHER_HOST, 0))
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()


def _again(request: RemotingCommand) -> RemotingCommand:
    (copy,) = FrameDecoder().feed(encode_frame(request))
    copy.opaque = next_opaque()
    return copy


def _recorded(code: int, serialization: Serialization, age_ms: int = 0) -> RemotingCommand:
    """A signed request of a code, as somebody on the network has recorded it."""
    batch = code == Code.SEND_BATCH_MESSAGE
    message = WireMessage("T", b"1")
    message.properties["UNIQ_KEY"] = "A"
    body = encode_batch([message]) if batch else b"body"
    request = send(
        "T",
        body,
        properties={} if batch else {"UNIQ_KEY": "A"},
        code=Code.SEND_MESSAGE if code in _LONG_NAMES else code,
        batch=batch,
        born_ms=now_ms() - age_ms,
        serialization=serialization,
    )
    request.code = code
    return signed(request, ROOT)


async def _stored(client: RawClient) -> int:
    """Number of messages in the topic."""
    answer = await ask_as(client, Code.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
    return int(answer.ext_fields["offset"])


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_recorded_sends_are_not_served(tmp_path: Path, serialization: Serialization) -> None:
    """Neither within the window nor after it, from the same host or another one, on both ports."""
    replies = {Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2}
    async with _broker(tmp_path) as (broker, client):
        for code in sorted(TIMED_CODES - replies):
            before = await _stored(client)
            request = _recorded(code, serialization)
            first = sent(await client.ask(request))
            assert await _stored(client) == before + 1
            again = await client.ask(_again(request))
            assert sent(again) == first
            for port in (broker.port, broker.fast_port):
                async with _client_elsewhere(port) as elsewhere:
                    refused = await elsewhere.ask(_again(request))
                    assert refused.code == ResponseCode.NO_PERMISSION
                    assert "recorded and sent again" in (refused.remark or "")
            old = await client.ask(_recorded(code, serialization, age_ms=61_000))
            assert old.code == ResponseCode.NO_PERMISSION
            assert await _stored(client) == before + 1
        old = await client.ask(_recorded(Code.SEND_REPLY_MESSAGE_V2, serialization, age_ms=61_000))
        assert old.code == ResponseCode.NO_PERMISSION


async def test_a_restart_does_not_let_recorded_sends_in(tmp_path: Path) -> None:
    async with _broker(tmp_path) as (_, client):
        request = _recorded(Code.SEND_MESSAGE_V2, Serialization.BINARY)
        sent(await client.ask(request))
    async with running_broker(tmp_path, **_WINDOW) as broker, broker.client() as client:
        refused = await client.ask(_again(request))
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "before the broker was started" in (refused.remark or "")
        assert await _stored(client) == 1


async def test_one_way_sends_are_stored_once(tmp_path: Path) -> None:
    async with _broker(tmp_path) as (_, client):
        request = send("T", properties={"UNIQ_KEY": "A"}, born_ms=now_ms(), oneway=True)
        request = signed(request, ROOT)
        client.send(request, _again(request))
        assert await _stored(client) == 1


async def test_without_a_window_recorded_sends_are_served(tmp_path: Path) -> None:
    """As with Apache's broker; this is what the setting is for."""
    async with _broker(tmp_path, signatureReplayWindowSeconds=0) as (_, client):
        request = _recorded(Code.SEND_MESSAGE_V2, Serialization.BINARY, age_ms=3_600_000)
        for number in range(2):
            assert sent(await client.ask(_again(request))).queue_offset == number


async def test_sends_under_synchronous_flush(tmp_path: Path) -> None:
    async with _broker(tmp_path, flushDiskType="SYNC_FLUSH") as (_, client):
        request = _recorded(Code.SEND_MESSAGE_V2, Serialization.BINARY)
        again = _again(request)
        client.send(request, again)
        answers = {answer.opaque: sent(answer) for answer in (await client.receive(), await client.receive())}
        assert answers[request.opaque] == answers[again.opaque]
        assert await _stored(client) == 1


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_the_sdk_sends_as_before(tmp_path: Path, serialization: Serialization) -> None:
    settings = ClientSettings(credentials=ROOT, serialization=serialization)
    keys = {"readyWaitMillis": 10_000}
    async with (
        running_namesrv(tmp_path) as namesrv,
        _broker(tmp_path, namesrvAddr=namesrv.address, **keys) as (broker, _),
    ):
        address = namesrv.address
        async with Admin(address, settings=settings) as admin:
            await admin.create_topic("U", queues=1)
        expected = [b"batched"] * 8 + [b"equal"] * 20 + [b"in a transaction", b"one-way", b"x", b"y"]
        async with Producer(address, group="p", settings=settings) as producer:
            await asyncio.gather(*(producer.send(Message("U", b"equal")) for _ in range(20)))
            await producer.send_batch([Message("U", b"x"), Message("U", b"y")])
            await producer.send_oneway(Message("U", b"one-way"))
            async with producer.transaction(Message("U", b"in a transaction")):
                pass
        async with Producer(address, group="q", settings=settings, batching=BatchPolicy()) as producer:
            await asyncio.gather(*(producer.send(Message("U", b"batched")) for _ in range(8)))
        inbox = Inbox()
        async with PushConsumer(
            address, group="g", topics=["U"], listener=inbox, consume_from="first", settings=settings
        ):
            await until(lambda: inbox.bodies == expected, 30)
        async with SimpleConsumer(
            address, group="s", topics=["U"], consume_from="first", settings=settings
        ) as consumer:
            (message,) = await consumer.receive(1, timeout_seconds=10)
            await consumer.ack(message)
        assert broker.services.replays is not None
        assert (broker.services.replays.refused, broker.services.replays.answered_again) == (0, 0)


async def test_requests_and_replies_of_the_sdk(tmp_path: Path) -> None:
    settings = ClientSettings(credentials=ROOT)
    async with (
        running_namesrv(tmp_path) as namesrv,
        _broker(tmp_path, namesrvAddr=namesrv.address, readyWaitMillis=10_000),
        Producer(namesrv.address, group="answering", settings=settings) as answering,
        Producer(namesrv.address, group="asking", settings=settings) as asking,
    ):

        async def answer(messages: list[MessageExt]) -> None:
            for message in messages:
                await answering.reply(message, b"answer to " + message.body)

        async with PushConsumer(
            namesrv.address,
            group="g",
            topics=["T"],
            listener=answer,
            consume_from="first",
            settings=settings,
        ):
            reply = await asking.request(Message("T", b"question"), timeout_seconds=20)
        assert reply.body == b"answer to question"


def test_a_window_needs_signatures(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="set authenticationEnabled=true, too"):
        broker_configuration(tmp_path, signatureReplayWindowSeconds=60)
