"""From FastStream's commands to the SDK's messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from faststream._internal.constants import ContentTypes
from faststream._internal.parser import BatchCodecProto

from rmq_client import Message, UsageError

from .parser import CONTENT_TYPE, CORRELATION_ID, REPLY_TO
from .response import RocketPublishCommand

if TYPE_CHECKING:
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.parser import CodecProto

# None as a body: brokers refuse an empty one, which FastStream's other brokers send.
_JSON_NULL: Final = (b"null", ContentTypes.JSON.value)


async def encode_message(
    cmd: RocketPublishCommand, codec: CodecProto, serializer: SerializerProto | None
) -> Message:
    """Return the command's message. Raises as `encode_body`, and the SDK's errors for options."""
    body, content_type = await encode_body(cmd, codec, serializer)
    return _message(cmd, body, content_type)


async def encode_body(
    cmd: RocketPublishCommand, codec: CodecProto, serializer: SerializerProto | None
) -> tuple[bytes, str | None]:
    """Return the body and its content type. Raises UsageError for an empty one."""
    if cmd.body is None:
        return _JSON_NULL
    body, content_type = await codec.encode(cmd.body, serializer)
    return _not_empty(cmd, body), content_type


async def encode_batch(
    cmd: RocketPublishCommand, codec: CodecProto, serializer: SerializerProto | None
) -> list[Message]:
    """Return the command's messages, which share all options."""
    if isinstance(codec, BatchCodecProto):
        encoded = await codec.encode_batch(cmd.batch_bodies, serializer)
    else:
        encoded = [await codec.encode(body, serializer) for body in cmd.batch_bodies]
    return [_message(cmd, _not_empty(cmd, body), content_type) for body, content_type in encoded]


def header_properties(cmd: RocketPublishCommand, content_type: str | None) -> dict[str, str]:
    """Return the headers, the content type, the correlation id and the reply topic as user properties.

    Headers whose value is None are omitted; other values become texts.
    """
    properties = {name: str(value) for name, value in cmd.headers.items() if value is not None}
    own: Mapping[str, Any] = {
        CONTENT_TYPE: content_type,
        CORRELATION_ID: cmd.correlation_id,
        REPLY_TO: cmd.reply_to,
    }
    properties.update({name: value for name, value in own.items() if value})
    return properties


def _not_empty(cmd: RocketPublishCommand, body: bytes) -> bytes:
    """Refuse an empty body as the SDK does, also where nothing is sent: in memory."""
    if not body:
        raise UsageError(
            f"a message to {cmd.destination} has an empty body, which brokers refuse: publish None"
        )
    return body


def check_options(cmd: RocketPublishCommand) -> None:
    """Raise InvalidPropertyError for headers and options that no message can have."""
    _message(cmd, b"", None)


def _message(cmd: RocketPublishCommand, body: bytes, content_type: str | None) -> Message:
    message = Message(
        cmd.destination,
        body,
        tags=cmd.tag,
        keys=cmd.keys,
        properties=header_properties(cmd, content_type),
        delay_level=cmd.delay_level,
        delay_seconds=cmd.delay_seconds,
        deliver_at=cmd.deliver_at,
    )
    if cmd.sharding_key:
        message.sharding_key = cmd.sharding_key
    return message
