"""From the SDK's messages to FastStream's."""

from __future__ import annotations

from typing import Any, Final

from faststream.message import StreamMessage, decode_message

from rmq_client import MessageExt

from .message import RocketBatchMessage, RocketMessage, current_settlement

CONTENT_TYPE: Final = "content-type"
CORRELATION_ID: Final = "correlation_id"
REPLY_TO: Final = "reply_to"
# Properties of RocketMQ, of requests that wait for a reply and others (Apache RocketMQ 5.3.3, MessageConst).
_REQUEST_ID: Final = "CORRELATION_ID"
_REQUESTER: Final = "REPLY_TO_CLIENT"
_TYPE: Final = "MSG_TYPE"
_REPLY: Final = "reply"
_SHARDING_KEY: Final = "__SHARDINGKEY"


def is_request(message: MessageExt) -> bool:
    """Whether the sender waits for a reply, by RocketMQ's request and reply. (Replies name it, too.)"""
    properties = message.properties
    return bool(properties.get(_REQUESTER)) and properties.get(_TYPE) != _REPLY


def headers_of(message: MessageExt) -> dict[str, str]:
    """Return the user properties as headers. (Apache's list of reserved names lacks the sharding key.)"""
    headers = message.user_properties
    headers.pop(_SHARDING_KEY, None)
    return headers


class RocketParser:
    """Parser and decoder of a subscriber with `batch=False`.

    User properties become headers. FastStream's content type, correlation id and reply topic are user
    properties, too: `content-type`, `correlation_id` and `reply_to`.
    """

    async def parse_message(self, message: MessageExt) -> RocketMessage:
        """Return a message with its headers. A request's `reply_to` is the client id of the requester."""
        headers = headers_of(message)
        requester = message.properties[_REQUESTER] if is_request(message) else None
        parsed = RocketMessage(
            raw_message=message,
            body=message.body,
            headers=headers,
            reply_to=requester or headers.get(REPLY_TO, ""),
            content_type=headers.get(CONTENT_TYPE),
            correlation_id=headers.get(CORRELATION_ID) or message.properties.get(_REQUEST_ID),
            message_id=message.msg_id,
        )
        parsed.settle_with(current_settlement())
        return parsed

    async def decode_message(self, message: StreamMessage[MessageExt]) -> Any:
        """Decode a body by its content type; without one, JSON if possible, or else bytes."""
        return decode_message(message)


class RocketBatchParser:
    """Parser and decoder of a subscriber with `batch=True`. Batches are not replied to."""

    def __init__(self) -> None:
        self._single = RocketParser()

    async def parse_batch(self, messages: tuple[MessageExt, ...]) -> RocketBatchMessage:
        """Return one message for all: its body is the list of their bodies."""
        all_headers = [headers_of(message) for message in messages]
        headers = all_headers[0]
        parsed = RocketBatchMessage(
            raw_message=messages,
            body=[message.body for message in messages],
            headers=headers,
            batch_headers=all_headers,
            content_type=headers.get(CONTENT_TYPE),
            correlation_id=headers.get(CORRELATION_ID),
            message_id=messages[0].msg_id,
        )
        parsed.settle_with(current_settlement())
        return parsed

    # FastStream knows a batch decoder by this name.
    async def decode_batch(self, message: StreamMessage[tuple[MessageExt, ...]]) -> list[Any]:
        """Decode each body by its own content type."""
        return [decode_message(await self._single.parse_message(one)) for one in message.raw_message]
