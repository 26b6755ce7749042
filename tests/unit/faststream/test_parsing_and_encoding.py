"""Messages of the SDK as messages of FastStream, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from faststream._internal.parser import DefaultCodec
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand

from rmq_client import InvalidPropertyError, MessageExt, reply_to
from rmq_faststream import RocketPublishCommand
from rmq_faststream.encoding import encode_batch, encode_message
from rmq_faststream.parser import RocketBatchParser, RocketParser, is_request

_REQUEST = {"CORRELATION_ID": "r1", "REPLY_TO_CLIENT": "client-1", "CLUSTER": "c", "TTL": "3000"}


def _command(body: Any, *bodies: Any, **options: Any) -> RocketPublishCommand:
    return RocketPublishCommand(body, *bodies, topic="orders", **options, _publish_type=PublishType.PUBLISH)


async def test_a_command_becomes_a_message() -> None:
    command = _command(
        {"a": 1},
        tag="paid",
        keys=["k1", "k2"],
        sharding_key="s",
        delay_seconds=timedelta(seconds=2),
        headers={"number": 7, "none": None},
        correlation_id="c1",
        reply_to="answers",
    )
    message = await encode_message(command, DefaultCodec(), None)
    assert (message.topic, message.body, message.tags, message.keys) == (
        "orders",
        b'{"a":1}',
        "paid",
        ["k1", "k2"],
    )
    assert (message.sharding_key, message.delay_seconds) == ("s", 2.0)
    assert message.user_properties == {
        "number": "7",
        "content-type": "application/json",
        "correlation_id": "c1",
        "reply_to": "answers",
        "__SHARDINGKEY": "s",
    }


async def test_delays_of_two_kinds_are_refused() -> None:
    command = _command("x", delay_level=3, deliver_at=datetime.now(UTC) + timedelta(hours=1))
    with pytest.raises(InvalidPropertyError, match="one delivery time"):
        await encode_message(command, DefaultCodec(), None)


async def test_reserved_names_of_headers_are_refused() -> None:
    with pytest.raises(InvalidPropertyError, match="KEYS"):
        await encode_message(_command("x", headers={"KEYS": "a"}), DefaultCodec(), None)


async def test_messages_of_a_batch_share_the_options() -> None:
    messages = await encode_batch(_command("a", b"b", {"c": 1}, tag="t"), DefaultCodec(), None)
    assert [message.body for message in messages] == [b"a", b"b", b'{"c":1}']
    assert {message.tags for message in messages} == {"t"}
    assert [message.properties.get("content-type") for message in messages] == [
        "text/plain",
        None,
        "application/json",
    ]


async def test_user_properties_become_headers() -> None:
    raw = MessageExt("orders", b"[1]", properties={"shop": "eu", "TAGS": "t", "__SHARDINGKEY": "s"})
    raw.unique_key = "id-1"
    message = await RocketParser().parse_message(raw)
    assert message.headers == {"shop": "eu"}
    assert (message.message_id, message.reply_to, message.content_type) == ("id-1", "", None)
    assert await RocketParser().decode_message(message) == [1]


async def test_a_body_without_content_type_that_is_no_json_stays_bytes() -> None:
    message = await RocketParser().parse_message(MessageExt("orders", b"\xff{"))
    assert await RocketParser().decode_message(message) == b"\xff{"


async def test_a_request_of_rocketmq_is_replied_to() -> None:
    raw = MessageExt("ask", b"x", properties=dict(_REQUEST))
    message = await RocketParser().parse_message(raw)
    assert (message.reply_to, message.correlation_id) == ("client-1", "r1")
    assert is_request(raw)


async def test_a_reply_is_no_request() -> None:
    reply = reply_to(MessageExt("ask", b"x", properties=dict(_REQUEST)), b"y")
    raw = MessageExt(reply.topic, reply.body, properties=reply.properties)
    assert not is_request(raw)
    assert (await RocketParser().parse_message(raw)).reply_to == ""


async def test_a_batch_is_decoded_by_the_content_type_of_each_message() -> None:
    raw = (
        MessageExt("orders", b"1", properties={"content-type": "text/plain", "n": "1"}),
        MessageExt("orders", b"1", properties={"content-type": "application/json", "n": "2"}),
    )
    parser = RocketBatchParser()
    message = await parser.parse_batch(raw)
    assert await parser.decode_batch(message) == ["1", 1]
    assert [headers["n"] for headers in message.batch_headers] == ["1", "2"]
    assert message.headers["n"] == "1"


def test_a_plain_result_becomes_a_command() -> None:
    plain = PublishCommand(
        ["a", "b"], destination="t", headers={"h": 1}, correlation_id="c", _publish_type=PublishType.PUBLISH
    )
    command = RocketPublishCommand.from_cmd(plain, batch=True)
    assert command.batch_bodies == ("a", "b")
    assert (command.destination, command.headers, command.correlation_id) == ("t", {"h": 1}, "c")
    assert RocketPublishCommand.from_cmd(plain).batch_bodies == (["a", "b"],)
    assert RocketPublishCommand.from_cmd(command) is command


@pytest.mark.parametrize("body", ["text", b"bytes", {"a": 1}, None])
def test_only_lists_are_several_messages(body: Any) -> None:
    command = RocketPublishCommand.from_cmd(_command(body), batch=True)
    assert command.batch_bodies == (() if body is None else (body,))
